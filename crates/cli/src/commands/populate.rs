//! `sporran populate`.

use clap::Args;
use sporran_pipeline::registry;

use super::ConfigArgs;
use crate::{
    error::Result,
    outcome::{Context, Outcome},
};

/// `sporran populate`
#[derive(Args)]
#[command(after_help = "Example: sporran populate configs/quickstart-kbp.toml")]
pub(crate) struct Populate {
    #[command(flatten)]
    config: ConfigArgs,
}

impl Populate {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let (path, overrides) = self.config.parts()?;
        Ok(registry::run_as("population", path, overrides, &mut context.observer())?.into())
    }
}
