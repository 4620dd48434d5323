//! `sporran annotate candidates`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_kilt::{
    PassageStore,
    annotation::candidates::{CandidateRequest, System, candidates},
};

use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::Outcome,
    paths,
};

/// `sporran annotate candidates`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran annotate candidates --tasks examples/minikilt/kilt/nq-dev-kilt.jsonl \\\n    \
        --system bm25=runs/quickstart/retrieval/nq-dev-kilt.trec --store indexes/store-KEY \\\n    \
        --key key.jsonl --output sheet.csv\n\
        \n\
        Annotators write `yes` or `no` into `vote`: whether the passage is enough evidence for an answer.\n\
        They may copy the words that are the evidence into `span`.")]
pub(crate) struct Candidates {
    /// Task file with answers, in KILT's layout
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    tasks: PathBuf,
    /// System and its file: predictions with provenance, or a run in TREC's format over the store's passages. Repeat for
    /// further systems; the KILT paper has four
    #[arg(long = "system", required = true, value_name = "NAME=FILE", value_parser = system)]
    systems: Vec<System>,
    /// Passage store with the texts of the candidates
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: PathBuf,
    /// Number of passages of each system
    #[arg(long, value_name = "N", default_value_t = 1)]
    per_system: usize,
    /// Number of ranks of each system to look at
    #[arg(long, value_name = "N", default_value_t = 100)]
    depth: usize,
    /// Minimum share of an answer's words in a system's passage, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    min_overlap: f64,
    /// Leave out the gold passages, as for ELI5 in the KILT paper
    #[arg(long)]
    no_gold: bool,
    /// Seed for the order of a record's passages
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// File to write with the systems of each passage and whether it is gold, as JSON lines; not for annotators
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key: Option<PathBuf>,
    /// Sheet to write: CSV if the name ends in .csv, else JSON lines; .gz and .zst compress; `-` is standard output
    #[arg(long, short, value_name = "PATH", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

impl Candidates {
    pub(crate) fn run(self) -> Result<Outcome> {
        let Self { tasks, systems, store, per_system, depth, min_overlap, no_gold, seed, key, output } = self;
        paths::file(&tasks)?;
        systems.iter().try_for_each(|system| paths::file_to_reread(&system.path))?;
        paths::folder(&store)?;
        let read = || [&tasks].into_iter().chain(systems.iter().map(|system| &system.path));
        paths::not_read(&output, read())?;
        if let Some(key) = &key {
            paths::not_read(key, read())?;
            if *key == output {
                let message = format!("--key: expected another file than the sheet, {}", key.display());
                return Err(Error::Usage(message));
            }
        }
        interrupt::keep(Kept::Output(output.clone()));
        let store = PassageStore::open(&store)?;
        let request = CandidateRequest {
            tasks,
            systems,
            per_system,
            depth,
            min_overlap,
            with_gold: !no_gold,
            seed,
            output,
            key,
        };
        let summary = candidates(&request, &store)?;
        Ok(Outcome::of(&summary)?.aside())
    }
}

fn system(text: &str) -> Result<System, String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok(System { name: name.to_owned(), path: path.into() })
        }
        _ => Err(format!("expected NAME=FILE, found `{text}`")),
    }
}
