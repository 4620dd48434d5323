//! `sporran docs`: pages of the manual that are generated from the program.

use std::{fs, path::PathBuf};

use clap::{CommandFactory, Subcommand};
use serde_json::json;
use sporran_transformers::{ARCHITECTURES, ArchitectureEntry};

use crate::{
    Cli,
    error::{Error, Result},
    help,
    outcome::Outcome,
};

/// The page of models, whose table of architectures is made anew.
const MODELS: &str = include_str!("../../../../docs/models.md");
/// The lines around that table.
const TABLE: [&str; 2] =
    ["<!-- `sporran docs models` writes this table. -->\n", "<!-- The end of the table. -->\n"];

/// `sporran docs`
#[derive(Subcommand)]
pub(crate) enum Docs {
    /// `docs/cli.md`: every command with its options
    Cli,
    /// `docs/models.md`: the architectures, with their tasks, engines, precisions and devices
    Models,
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
            Self::Models => {
                let text = models_page();
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

/// The page of models with the table of the registry.
fn models_page() -> String {
    let [start, end] = TABLE;
    let parts = MODELS.split_once(start).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let (before, after) = parts.unwrap_or((MODELS, ""));
    format!("{before}{start}{}{end}{after}", architectures()).trim_end().to_owned()
}

/// The architectures, a row each.
fn architectures() -> String {
    let header = "| architecture | `model_type` | tasks | `engine` | CPU | GPU | training |\n|---|---|---|---|---|---|---|\n";
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let row = |entry: &ArchitectureEntry| {
        let tasks: Vec<&str> = entry.tasks.iter().map(|task| task.name()).collect();
        format!(
            "| {} | `{}` | {} | {} | {} | {} | {} |\n",
            entry.name,
            entry.model_type,
            tasks.join(", "),
            quoted(&entry.engines()),
            quoted(entry.cpu_precisions()),
            quoted(entry.gpu_precisions()),
            if entry.is_trained() { "yes" } else { "no" },
        )
    };
    header.to_owned() + &ARCHITECTURES.iter().map(row).collect::<String>()
}
