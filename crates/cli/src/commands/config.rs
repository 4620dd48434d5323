//! `sporran config check` and `sporran config show`.

use clap::Subcommand;
use sporran_pipeline::{Options, korc, links, population, rules, selection, tagging};

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
                if links::is_links(&config.config, &config.overrides)? {
                    links::LinksOptions::load(&config.config, &config.overrides)?;
                } else if korc::is_reason(&config.config, &config.overrides)? {
                    korc::ReasonOptions::load(&config.config, &config.overrides)?;
                } else if rules::is_rules(&config.config, &config.overrides)? {
                    rules::RulesOptions::load(&config.config, &config.overrides)?;
                } else if population::is_population(&config.config, &config.overrides)? {
                    population::PopulationOptions::load(
                        &config.config,
                        &config.overrides,
                        population::Purpose::All,
                    )?;
                } else if selection::is_selection(&config.config, &config.overrides)? {
                    selection::SelectionOptions::load(&config.config, &config.overrides)?;
                } else if tagging::is_tagging(&config.config, &config.overrides)? {
                    tagging::TaggingOptions::load(&config.config, &config.overrides)?;
                } else {
                    config.load()?;
                }
                print(&format!("{}: no mistakes\n", config.config.display()))
            }
            Self::Show(config) => print(&Options::load(&config.config, &config.overrides)?.to_toml()?),
        }
    }
}
