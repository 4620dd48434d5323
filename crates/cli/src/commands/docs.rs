//! `sporran docs`: pages of the manual that are generated from the program.

use clap::{CommandFactory, Subcommand};
use serde_json::json;

use crate::{Cli, error::Result, help, outcome::Outcome};

/// `sporran docs`
#[derive(Subcommand)]
pub(crate) enum Docs {
    /// `docs/cli.md`: every command with its options
    Cli,
}

impl Docs {
    pub(crate) fn run(self) -> Result<Outcome> {
        match self {
            Self::Cli => {
                let text = help::manual(&Cli::command());
                Outcome::new(&text, &json!({ "markdown": text }))
            }
        }
    }
}
