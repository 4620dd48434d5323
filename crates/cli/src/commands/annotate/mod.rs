//! `sporran annotate`: one file per step.

mod candidates;
mod merge;
mod review;

use clap::Subcommand;

use crate::{error::Result, outcome::Outcome};

/// `sporran annotate`
#[derive(Subcommand)]
pub(crate) enum Annotate {
    /// Write a sheet of candidate passages for annotators, from several systems' rankings
    Candidates(candidates::Candidates),
    /// Add the passages that annotators accepted to the records of a task file
    Merge(merge::Merge),
    /// List records whose evidence has few words of their answers (ROUGE-L)
    Review(review::Review),
}

impl Annotate {
    pub(crate) fn run(self) -> Result<Outcome> {
        match self {
            Self::Candidates(command) => command.run(),
            Self::Merge(command) => command.run(),
            Self::Review(command) => command.run(),
        }
    }
}
