//! `sporran config check` and `sporran config show`.

use clap::Subcommand;
use sporran_pipeline::{ConfigKind, show};

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
                let (path, overrides) = (&config.config, &config.overrides);
                match ConfigKind::of(path, overrides)? {
                    // A run's config is shown without a look at the files that it names.
                    ConfigKind::Run => drop(config.load()?),
                    _ => drop(show(path, overrides)?),
                }
                print(&format!("{}: no mistakes\n", config.config.display()))
            }
            Self::Show(config) => print(&show(&config.config, &config.overrides)?),
        }
    }
}
