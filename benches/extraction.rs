//! Fact extraction from pages, end to end, and the memory for a stream of pages; compared with spaCy's named
//! entities alone.
//!
//! Corpus: `PAGES=knowledge_source.jsonl.gz` (KILT's layout), the first `--pages N` of it (4,000), or
//! minikilt's pages. A fourth of them is read first, then all: with bounded memory the peak does not rise.
//! `sporran populate` runs as usual, with its journal and files; loading is not counted.
//!
//! ```text
//! PAGES=FILE PYTHON=python3 cargo bench --bench extraction      # needs spacy and en_core_web_sm for the peer
//! ```
//!
//! The peer is `scripts/reference/extraction.py`, in one process and in two. It finds only names; its
//! sentences a second are our sentences by its seconds. `MODELS=A:B` adds folders of relation models to the
//! two bundled ones.
#![allow(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::{
    error::Error,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use sporran::{
    kilt::jsonl,
    pipeline::{
        manifest::peak_memory_bytes,
        population::{PopulationOptions, Purpose, populate},
    },
};

const MODELS: [&str; 2] = ["models/knowledgenet-linear", "models/knowledgenet-distilled"];

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The results of a run: sentences, facts, seconds without loading.
fn run(folder: &Path, model: &str, pages: &Path) -> Result<(u64, u64, f64), Box<dyn Error>> {
    let name = format!(
        "{}-{}",
        model.rsplit('/').next().unwrap_or(model),
        pages.file_stem().unwrap_or_default().display()
    );
    let overrides = [
        format!("name={name}"),
        format!("output={}", folder.display()),
        format!("relations.model={model}"),
        "input.format=kilt".to_owned(),
        format!("input.files=[\"{}\"]", pages.display()),
        "~input.folds".to_owned(),
        "~input.pages".to_owned(),
    ];
    let options =
        PopulationOptions::load_for(Path::new("configs/quickstart-kbp.toml"), &overrides, Purpose::Populate)?;
    let report = populate(&options, &mut |_| {})?;
    let manifest: Value = jsonl::read_json(folder.join(&name).join("manifest.json"))?;
    let steps = manifest["seconds"].as_array().cloned().unwrap_or_default();
    let seconds =
        steps.iter().filter(|step| step["step"] != "load").filter_map(|step| step["seconds"].as_f64());
    let file = report.files.first().ok_or("no file was read")?;
    Ok((file.sentences as u64, file.facts as u64, seconds.sum()))
}

fn measure() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--pages");
    let count: usize = arguments.nth(1).map_or(Ok(4_000), |count| count.parse())?;
    let source =
        std::env::var("PAGES").unwrap_or_else(|_| "examples/minikilt/knowledge_source.jsonl.gz".into());
    let pages: Vec<String> = jsonl::open(&source)?
        .lines()
        .take(count)
        .map(|line| line.map(|(_, text)| text + "\n"))
        .collect::<Result<_, _>>()?;
    let folder = tempfile::tempdir()?;
    let write = |name: &str, pages: &[String]| -> Result<PathBuf, Box<dyn Error>> {
        let path = folder.path().join(name);
        jsonl::write(&path, pages.concat().as_bytes())?;
        Ok(path)
    };
    let (part, all) = (write("part.jsonl", &pages[..pages.len() / 4])?, write("all.jsonl", &pages)?);
    println!("{} pages of {source}, {} threads", pages.len(), std::thread::available_parallelism()?);
    let further = std::env::var("MODELS").unwrap_or_default();
    let models = MODELS.into_iter().chain(further.split(':').filter(|model| !model.is_empty()));
    let mut sentences = 0;
    for model in models {
        run(folder.path(), model, &part)?;
        let before = peak_memory_bytes();
        let (read, facts, seconds) = run(folder.path(), model, &all)?;
        sentences = read;
        println!(
            "{model}: {read} sentences, {facts} facts in {seconds:.2} s: {:.0} sentences/s; peak memory {:.0} MiB after a fourth, {:.0} MiB after all",
            read as f64 / seconds,
            mib(before),
            mib(peak_memory_bytes())
        );
    }
    let Ok(python) = std::env::var("PYTHON") else { return Ok(()) };
    for processes in ["1", "2"] {
        let output = Command::new(&python)
            .args(["-W", "ignore", "scripts/reference/extraction.py"])
            .arg(&all)
            .arg(processes)
            .output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        let found: Value = serde_json::from_slice(&output.stdout)?;
        let seconds = found["seconds"].as_f64().ok_or("the peer printed no seconds")?;
        println!(
            "spaCy, names alone, {processes} process(es): {} names in {seconds:.2} s: {:.0} sentences/s",
            found["names"],
            sentences as f64 / seconds
        );
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    match measure() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}
