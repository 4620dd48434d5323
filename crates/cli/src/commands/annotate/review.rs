//! `sporran annotate review`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_kilt::{
    PassageStore,
    annotation::review::{ReviewRequest, review},
};

use crate::{
    error::Result,
    interrupt::{self, Kept},
    outcome::Outcome,
    paths,
};

/// `sporran annotate review`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran annotate review --tasks examples/minikilt/kilt/eli5-dev-kilt.jsonl \\\n    \
        --store indexes/store-KEY --output review.jsonl")]
pub(crate) struct Review {
    /// Task file with answers and evidence, in KILT's layout
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    tasks: PathBuf,
    /// Passage store with the texts of the evidence
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: PathBuf,
    /// Limit: records with a lower ROUGE-L between evidence and answers are listed, 0 to 1
    #[arg(long, value_name = "ROUGE-L", default_value_t = 0.15)]
    below: f64,
    /// List to write, as JSON lines; .gz and .zst compress; `-` is standard output
    #[arg(long, short, value_name = "PATH", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

impl Review {
    pub(crate) fn run(self) -> Result<Outcome> {
        let Self { tasks, store, below, output } = self;
        paths::file(&tasks)?;
        paths::folder(&store)?;
        paths::not_read(&output, [&tasks])?;
        interrupt::keep(Kept::Output(output.clone()));
        let store = PassageStore::open(&store)?;
        let summary = review(&ReviewRequest { tasks, below, output }, &store)?;
        Ok(Outcome::of(&summary)?.aside())
    }
}
