//! `sporran report`.

use std::path::PathBuf;

use clap::Args;
use sporran_kilt::{jsonl, scores::significance::Rounds};
use sporran_pipeline::{Form, compare_runs};

use super::{print, print_json};
use crate::error::Result;

/// `sporran report`
#[derive(Args)]
pub(crate) struct ReportRuns {
    /// Folders of finished runs; differences are told from the first one
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// How it is written: text, markdown, latex, csv or html
    #[arg(long, default_value = "text", value_name = "FORM")]
    form: Form,
    /// A file to write to, in the place of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Rounds of the tests
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    rounds: u32,
    /// Seed of the tests
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print one JSON object
    #[arg(long, conflicts_with_all = ["form", "output"])]
    json: bool,
}

impl ReportRuns {
    pub(crate) fn run(self) -> Result<()> {
        let rounds = Rounds { count: self.rounds, seed: self.seed, ..Rounds::default() };
        let comparison = compare_runs(&self.runs, rounds)?;
        if self.json {
            return print_json(&comparison);
        }
        let text = comparison.write(self.form);
        match &self.output {
            Some(path) => Ok(jsonl::write(path, text.as_bytes())?),
            None => print(&text),
        }
    }
}
