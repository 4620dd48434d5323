//! `sporran convert`: one file per kind of conversion.

mod files;
mod gold;
mod korc;
mod map;
mod queries;
mod sentences;

use clap::Subcommand;

use crate::{
    error::Result,
    outcome::{Context, Outcome},
};

/// `sporran convert`
#[derive(Subcommand)]
pub(crate) enum Convert {
    /// Convert files from one format to another
    Files(files::Files),
    /// Add Wizard of Wikipedia's gold sentences and responses to WOW++'s dialogues
    Gold(gold::Gold),
    /// Map a dataset's evidence to the pages of a passage store; write KILT records
    Map(map::Map),
    /// Generate training queries about the pages of a passage store
    Queries(queries::Queries),
    /// Fetch sentences of T-REx to annotate in KnowledgeNet's layout
    Sentences(sentences::Sentences),
    /// Build a benchmark in KoRC's layout from a config
    Korc(korc::Korc),
}

impl Convert {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        match self {
            Self::Files(command) => command.run(),
            Self::Gold(command) => command.run(),
            Self::Map(command) => command.run(),
            Self::Queries(command) => command.run(),
            Self::Sentences(command) => command.run(),
            Self::Korc(command) => command.run(context),
        }
    }
}
