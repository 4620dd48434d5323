//! `sporran convert queries`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde_json::json;
use sporran_kilt::{PassageStore, counted, synthesis::synthesise};

use crate::{
    error::Result,
    interrupt::{self, Kept},
    outcome::Outcome,
    paths,
};

/// `sporran convert queries`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran convert queries --store indexes/store-KEY --count 6000 \\\n    \
        --output pages-train-kilt.jsonl\n\
        \n\
        Queries are parts of sentences, questions over two pages, comparisons and small talk.\n\
        They are KILT records with their pages as evidence, to train retrievers and rerankers.")]
pub(crate) struct Queries {
    /// Passage store with the pages
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: PathBuf,
    /// Number of queries
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Seed for the choice of pages and sentences
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// File to write; .gz and .zst compress; `-` is standard output
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

impl Queries {
    pub(crate) fn run(self) -> Result<Outcome> {
        paths::folder(&self.store)?;
        interrupt::keep(Kept::Output(self.output.clone()));
        let made = synthesise(&PassageStore::open(&self.store)?, self.count, self.seed, &self.output)?;
        let text = format!(
            "{}: {} of a page, {} of two pages, {}, {}",
            counted(self.count, "query"),
            counted(made.cloze, "part"),
            made.bridge,
            counted(made.comparison, "comparison"),
            counted(made.dialogue, "dialogue")
        );
        let counts = json!({
            "queries": self.count,
            "cloze": made.cloze,
            "bridge": made.bridge,
            "comparison": made.comparison,
            "dialogue": made.dialogue,
        });
        Ok(Outcome::new(text, &counts)?.aside())
    }
}
