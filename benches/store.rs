//! Reading, cutting and storing a knowledge source, and looking passages up.
//!
//! Corpus: `--source FILE` (KILT's layout), or `--pages N` synthetic pages (default 100,000) from seed 1: words `w0` to
//! `w99999` drawn with a long tail, three paragraphs of 60 words a page, so about 1.4 kB a line.
//! Command: `cargo bench --bench store -- [--source FILE] [--pages N]`.
//! Peer: Python's json in the same run, which parses each line, leaves list items and headers out and cuts the words
//! into hundreds, and stores nothing; left out where there is no `python3`.
#![allow(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sporran::{
    kilt::{PassageId, PassageSplit, PassageStore, jsonl::Writer, store::BuildOptions},
    pipeline::manifest::peak_memory_bytes,
};

const PEER: &str = "
import json, gzip, sys, time
path = sys.argv[1]
start = time.perf_counter()
passages = size = 0
with (gzip.open(path, 'rb') if path.endswith('.gz') else open(path, 'rb')) as lines:
    for line in lines:
        size += len(line)
        words = []
        for paragraph in json.loads(line)['text'][1:]:
            if not paragraph.startswith(('Section::::', 'BULLET::::')):
                words += paragraph.split()
        passages += len([' '.join(words[at:at + 100]) for at in range(0, len(words), 100)]) or 1
print(passages, size, time.perf_counter() - start)
";

/// Words by rank, the n-th about 1/n as frequent as the first.
fn word(random: &mut ChaCha8Rng) -> u32 {
    (100_000f64.powf(random.random::<f64>()) - 1.0) as u32
}

fn synthetic(path: &Path, pages: u32) -> Result<(), Box<dyn Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut writer = Writer::create(path)?;
    for page in 0..pages {
        let mut line =
            format!(r#"{{"wikipedia_id":"{page}","wikipedia_title":"Page {page}","text":["Page {page}\n""#);
        for _ in 0..3 {
            line.push_str(",\"");
            for _ in 0..60 {
                line.push_str(&format!("w{} ", word(&mut random)));
            }
            line.push_str("\\n\"");
        }
        line.push_str("],\"anchors\":[],\"categories\":\"\"}");
        writer.line(line.as_bytes())?;
    }
    Ok(writer.finish()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut source: Option<PathBuf> = None;
    let mut pages = 100_000;
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--source" => source = Some(value.into()),
            "--pages" => pages = value.parse()?,
            _ => return Err(format!("unknown option {argument}; known are --source and --pages").into()),
        }
    }
    let folder = tempfile::tempdir()?;
    let source = match source {
        Some(path) => path,
        None => {
            let path = folder.path().join("pages.jsonl");
            synthetic(&path, pages)?;
            path
        }
    };

    let before = peak_memory_bytes();
    let options = BuildOptions { source: source.clone(), redirects: None, split: PassageSplit::Words };
    let start = Instant::now();
    let store = PassageStore::build(&options, &folder.path().join("store"), &mut |_| {})?;
    let took = start.elapsed().as_secs_f64();
    println!("{} pages, {} passages, {:.1} MiB of store", store.pages(), store.len(), mib(store.bytes()));
    println!("built in {took:.2} s on {} threads", rayon::current_num_threads());
    println!(
        "peak memory {:.0} MiB, {:.0} MiB of it before the build",
        mib(peak_memory_bytes()),
        mib(before)
    );

    let start = Instant::now();
    let store = PassageStore::open(folder.path().join("store"))?;
    println!("opened in {:.2} ms", start.elapsed().as_secs_f64() * 1e3);

    let mut random = ChaCha8Rng::seed_from_u64(2);
    let wanted: Vec<PassageId> =
        (0..200_000).map(|_| PassageId(random.random_range(0..store.len() as u32))).collect();
    let rate = |name: &str, found: &dyn Fn(PassageId) -> usize| {
        let start = Instant::now();
        let sum: usize = wanted.iter().map(|&id| found(id)).sum();
        let rate = wanted.len() as f64 / start.elapsed().as_secs_f64();
        println!("{rate:>12.0} look-ups a second on one thread: {name} (checksum {sum})");
    };
    rate("passage with its place, by number", &|id| store.passage(id).text.len());
    rate("page by id", &|id| {
        let page = store.page_of(id);
        usize::from(store.page_by_id(store.page_id(page)) == Some(page))
    });
    rate("page by title", &|id| {
        let page = store.page_of(id);
        usize::from(store.page_by_title(store.page_title(page)).is_some())
    });

    let Ok(output) = Command::new("python3").args(["-c", PEER]).arg(&source).output() else {
        println!("no python3: the peer is left out");
        return Ok(());
    };
    let text = String::from_utf8(output.stdout)?;
    let figures: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [passages, bytes, seconds] = figures[..] else {
        return Err(format!("the peer failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    };
    let on_disk = fs::metadata(&source)?.len();
    println!("Python: {passages} passages in {seconds:.2} s, {:.1} MB/s", bytes / seconds / 1e6);
    let (rate, ratio) = (bytes / took / 1e6, seconds / took);
    println!("ours, stored: {rate:.1} MB/s of lines ({on_disk} bytes on disk), {ratio:.1} times Python");
    if passages as usize != store.len() {
        return Err(format!("Python cut {passages} passages, we cut {}", store.len()).into());
    }
    Ok(())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
