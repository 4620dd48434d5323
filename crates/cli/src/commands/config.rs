//! `sporran config check` and `sporran config show`.

use clap::Subcommand;
use serde_json::json;
use sporran_pipeline::{check, show};

use super::ConfigArgs;
use crate::{
    error::{Error, Result},
    outcome::Outcome,
};

/// `sporran config`
#[derive(Subcommand)]
pub(crate) enum Config {
    /// Find every mistake in a config without loading a model
    #[command(after_help = "Example: sporran config check configs/quickstart.toml")]
    Check(ConfigArgs),
    /// Print a config with all its defaults
    #[command(after_help = "Example: sporran config show configs/quickstart.toml > full.toml")]
    Show(ConfigArgs),
}

impl Config {
    pub(crate) fn run(self) -> Result<Outcome> {
        match self {
            Self::Check(config) => {
                let (path, overrides) = config.parts()?;
                let mistakes = check(path, overrides)?;
                if !mistakes.is_empty() {
                    return Err(sporran_pipeline::Error::Config(mistakes).into());
                }
                Outcome::new(format!("{}: no mistakes", path.display()), &json!({ "ok": true }))
            }
            Self::Show(config) => {
                let (path, overrides) = config.parts()?;
                let shown = show(path, overrides)?;
                let value: toml::Table = toml::from_str(&shown)
                    .map_err(|error| Error::Input(format!("{}: {}", path.display(), error.message())))?;
                Outcome::new(shown, &value)
            }
        }
    }
}
