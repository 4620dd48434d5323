//! `sporran config check` and `sporran config show`.

use clap::Subcommand;
use sporran_pipeline::{check, show};

use super::{ConfigArgs, print};
use crate::error::Result;

/// `sporran config`
#[derive(Subcommand)]
pub(crate) enum Config {
    /// Find every mistake without loading a model
    Check(ConfigArgs),
    /// Print the config with every default written out
    Show(ConfigArgs),
}

impl Config {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Check(config) => {
                let mistakes = check(&config.config, &config.overrides)?;
                if !mistakes.is_empty() {
                    return Err(sporran_pipeline::Error::Config(mistakes).into());
                }
                print(&format!("{}: no mistakes\n", config.config.display()))
            }
            Self::Show(config) => print(&show(&config.config, &config.overrides)?),
        }
    }
}
