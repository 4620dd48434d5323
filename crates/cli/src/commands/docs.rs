//! `sporran docs`: pages of the manual that are generated from the program.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{CommandFactory, Subcommand};
use serde_json::json;
use sporran_kilt::counted;
use sporran_transformers::{ARCHITECTURES, ArchitectureEntry};

use crate::{
    Cli,
    error::{Error, Result},
    help,
    outcome::Outcome,
};

/// The lines around the table of architectures in the page of models.
const TABLE: [&str; 2] =
    ["<!-- `sporran docs models` writes this table. -->\n", "<!-- The end of the table. -->\n"];

/// `sporran docs`
#[derive(Subcommand)]
pub(crate) enum Docs {
    /// `docs/cli.md`: every command with its options
    Cli,
    /// `docs/models.md`: the table of architectures, with their tasks, engines, precisions and devices
    Models {
        /// Page to write the table into, between the two comments that mark its place
        #[arg(value_name = "FILE")]
        page: PathBuf,
    },
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
            Self::Models { page } => {
                let text = fs::read_to_string(&page).map_err(Error::io(&page, "read"))?;
                let text = models_page(&page, &text)?;
                fs::write(&page, text).map_err(Error::io(&page, "write"))?;
                let summary = format!("{}: {} architectures", page.display(), ARCHITECTURES.len());
                Outcome::new(summary, &json!({ "architectures": ARCHITECTURES.len() }))
            }
            Self::Config { folder } => {
                fs::create_dir_all(&folder).map_err(Error::io(&folder, "create"))?;
                let pages = sporran_pipeline::registry::manual();
                for (name, text) in &pages {
                    let path = folder.join(name);
                    fs::write(&path, text).map_err(Error::io(&path, "write"))?;
                }
                let summary = format!("{}: {}", folder.display(), counted(pages.len() as u64, "page"));
                Outcome::new(summary, &json!({ "pages": pages.len() }))
            }
        }
    }
}

/// The page of models with the table of the registry.
fn models_page(path: &Path, page: &str) -> Result<String> {
    let [start, end] = TABLE;
    let parts = page.split_once(start).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let (before, after) = parts.ok_or_else(|| {
        let [start, end] = TABLE.map(str::trim_end);
        Error::Input(format!(
            "{}: expected the lines `{start}` and `{end}`, found no such pair",
            path.display()
        ))
    })?;
    Ok(format!("{before}{start}{}{end}{after}", architectures()))
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
