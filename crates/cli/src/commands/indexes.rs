//! `sporran indexes`: the cached indexes of `sporran ask`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use sporran_kilt::printable_line;
use sporran_pipeline::cache::{CachedIndexes, cached, cached_indexes, remove_cached, size};

use crate::{error::Result, outcome::Outcome, settings};

/// `sporran indexes`
#[derive(Subcommand)]
pub(crate) enum Indexes {
    /// List the cached indexes with their sources and sizes, and the responses of `ask --llm`
    #[command(
        after_help = "Example: sporran indexes list\n\nWith --json, the indexes of each set of sources are one object on a line."
    )]
    List,
    /// Show the parts of the cached indexes of a set of sources
    #[command(after_help = "Example: sporran indexes show notes-0123abcd")]
    Show(Show),
    /// Remove cached indexes or responses; the sources stay
    #[command(after_help = "Example: sporran indexes remove notes-0123abcd")]
    Remove(Remove),
}

/// `sporran indexes show`
#[derive(Args)]
pub(crate) struct Show {
    /// Name that `sporran indexes list` prints
    #[arg(value_name = "NAME")]
    name: String,
}

/// `sporran indexes remove`
#[derive(Args)]
pub(crate) struct Remove {
    /// Names that `sporran indexes list` prints
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    names: Vec<String>,
    /// Remove the indexes of all sources, and the responses
    #[arg(long)]
    all: bool,
}

impl Indexes {
    pub(crate) fn run(self) -> Result<Outcome> {
        let cache = settings::cache(&settings::user()?)?;
        match self {
            Self::List => list(&cache),
            Self::Show(command) => show(&cached(&cache, &command.name)?),
            Self::Remove(command) => remove(&cache, command),
        }
    }
}

/// The sources, or what the folder is without any.
fn sources(found: &CachedIndexes) -> String {
    if found.is_responses() {
        return "responses of `--llm`".to_owned();
    }
    if found.sources.is_empty() {
        // The build of a config notes no sources.
        let what = if found.parts.is_empty() { "unfinished" } else { "sources not noted" };
        return what.to_owned();
    }
    let shown = |path: &PathBuf| printable_line(&path.display().to_string());
    found.sources.iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn list(cache: &Path) -> Result<Outcome> {
    let found = cached_indexes(cache)?;
    let width = found.iter().map(|found| found.name.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for item in &found {
        text.push_str(&format!("{:<width$} {:>10}  {}\n", item.name, size(item.bytes), sources(item)));
    }
    let all: u64 = found.iter().map(|found| found.bytes).sum();
    text.push_str(&format!("{} in {}\n", size(all), cache.display()));
    Outcome::list(text, &found)
}

fn show(found: &CachedIndexes) -> Result<Outcome> {
    let mut text = format!("sources  {}\nfolder   {}\n", sources(found), found.folder.display());
    for part in &found.parts {
        text.push_str(&format!("{:>10}  {}\n", size(part.bytes), part.name));
    }
    text.push_str(&format!("{:>10}  all\n", size(found.bytes)));
    Outcome::new(text, found)
}

fn remove(cache: &Path, command: Remove) -> Result<Outcome> {
    let names = match command.all {
        true => cached_indexes(cache)?.into_iter().map(|found| found.name).collect(),
        false => command.names,
    };
    // Every name is checked before anything is removed.
    for name in &names {
        cached(cache, name)?;
    }
    let mut bytes = 0;
    for name in &names {
        bytes += remove_cached(cache, name)?.bytes;
    }
    let text = format!(
        "removed {}: {}",
        size(bytes),
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    );
    Outcome::new(text, &json!({ "removed": names, "bytes": bytes }))
}
