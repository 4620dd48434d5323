//! `sporran completions`.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};
use serde_json::json;

use crate::{Cli, error::Result, outcome::Outcome};

/// `sporran completions`
#[derive(Args)]
#[command(
    after_help = "Example: sporran completions bash > ~/.local/share/bash-completion/completions/sporran\n\
        \n\
        zsh reads a file `_sporran` in a folder of its `fpath`.\n\
        fish reads ~/.config/fish/completions/sporran.fish."
)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<Outcome> {
        let mut script = Vec::new();
        generate(self.shell, &mut Cli::command(), "sporran", &mut script);
        let script = String::from_utf8_lossy(&script).into_owned();
        Outcome::new(&script, &json!({ "shell": self.shell.to_string(), "script": script }))
    }
}
