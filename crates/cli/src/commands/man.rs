//! `sporran man`.

use std::{fs, path::PathBuf};

use clap::{Args, CommandFactory, ValueHint};
use serde_json::json;

use crate::{
    Cli,
    error::{Error, Result},
    outcome::Outcome,
};

/// `sporran man`
#[derive(Args)]
#[command(after_help = "Example: sporran man ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Folder to write to: one page a command, such as `sporran-run.1`
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> Result<Outcome> {
        let folder = &self.folder;
        fs::create_dir_all(folder).map_err(Error::io(folder, "create"))?;
        clap_mangen::generate_to(Cli::command(), folder).map_err(Error::io(folder, "write"))?;
        Outcome::new(format!("man pages: {}", folder.display()), &json!({ "folder": folder }))
    }
}
