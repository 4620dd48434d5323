//! `sporran docs`: pages of the manual that are generated from the program.

use std::{fs, path::PathBuf};

use clap::{CommandFactory, Subcommand};
use serde_json::json;

use crate::{
    Cli,
    error::{Error, Result},
    help,
    outcome::Outcome,
};

/// `sporran docs`
#[derive(Subcommand)]
pub(crate) enum Docs {
    /// `docs/cli.md`: every command with its options
    Cli,
    /// `docs/config`: every key of every workflow's configs
    Config {
        /// Folder to write the pages to
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

impl Docs {
    pub(crate) fn run(self) -> Result<Outcome> {
        match self {
            Self::Cli => {
                let text = help::manual(&Cli::command());
                Outcome::new(&text, &json!({ "markdown": text }))
            }
            Self::Config { folder } => {
                fs::create_dir_all(&folder).map_err(Error::io(&folder, "create"))?;
                let pages = sporran_pipeline::registry::manual();
                for (name, text) in &pages {
                    let path = folder.join(name);
                    fs::write(&path, text).map_err(Error::io(&path, "write"))?;
                }
                let summary = format!("{}: {} pages", folder.display(), pages.len());
                Outcome::new(summary, &json!({ "pages": pages.len() }))
            }
        }
    }
}
