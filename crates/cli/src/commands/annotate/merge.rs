//! `sporran annotate merge`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_kilt::annotation::merge::{MergeRequest, merge};

use crate::{
    error::Result,
    interrupt::{self, Kept},
    outcome::Outcome,
    paths,
};

/// `sporran annotate merge`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran annotate merge --tasks nq-dev-kilt.jsonl --output merged/nq-dev-kilt.jsonl \\\n    \
        ann.csv ben.csv eve.csv\n\
        \n\
        Records whose passages were all rejected are left out. Records without votes stay as they are.")]
pub(crate) struct Merge {
    /// Task file of the sheets, in KILT's layout
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    tasks: PathBuf,
    /// Annotated sheets, one for each annotator, or with a column `annotator`
    #[arg(required = true, value_name = "SHEET", value_hint = ValueHint::FilePath)]
    sheets: Vec<PathBuf>,
    /// Number of votes `yes` that accept a passage
    #[arg(long, value_name = "N", default_value_t = 2)]
    votes: usize,
    /// Keep the records whose passages were all rejected
    #[arg(long)]
    keep_rejected: bool,
    /// Task file to write; .gz and .zst compress; `-` is standard output
    #[arg(long, short, value_name = "PATH", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

impl Merge {
    pub(crate) fn run(self) -> Result<Outcome> {
        let Self { tasks, sheets, votes, keep_rejected, output } = self;
        [&tasks].into_iter().chain(&sheets).try_for_each(|path| paths::file(path))?;
        paths::not_read(&output, [&tasks].into_iter().chain(&sheets))?;
        interrupt::keep(Kept::Output(output.clone()));
        let summary = merge(&MergeRequest { tasks, sheets, min_votes: votes, keep_rejected, output })?;
        Ok(Outcome::of(&summary)?.aside())
    }
}
