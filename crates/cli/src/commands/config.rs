//! `sporran config check` and `sporran config show`.

use clap::Subcommand;
use sporran_pipeline::{
    ConfigKind, Options, documents, korc, linking, links,
    population::{PopulationOptions, Purpose},
    rules, selection, slots, tagging,
};

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
                    ConfigKind::Run => drop(config.load()?),
                    ConfigKind::Links => drop(links::LinksOptions::load(path, overrides)?),
                    ConfigKind::Network => drop(links::NetworkConfig::load(path, overrides)?),
                    ConfigKind::Reason => drop(korc::ReasonOptions::load(path, overrides)?),
                    ConfigKind::Documents => drop(documents::DocumentsOptions::load(path, overrides)?),
                    ConfigKind::Linking => drop(linking::LinkingOptions::load(path, overrides)?),
                    ConfigKind::Rules => drop(rules::RulesOptions::load(path, overrides)?),
                    ConfigKind::Population => {
                        drop(PopulationOptions::load(path, overrides, Purpose::All)?);
                    }
                    ConfigKind::Responses => drop(selection::ResponseOptions::load(path, overrides)?),
                    ConfigKind::Selection => drop(selection::SelectionOptions::load(path, overrides)?),
                    ConfigKind::Slots => drop(slots::SlotsOptions::load(path, overrides)?),
                    ConfigKind::Tagging => drop(tagging::TaggingOptions::load(path, overrides)?),
                }
                print(&format!("{}: no mistakes\n", config.config.display()))
            }
            Self::Show(config) => print(&Options::load(&config.config, &config.overrides)?.to_toml()?),
        }
    }
}
