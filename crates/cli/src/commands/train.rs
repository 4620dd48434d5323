//! `sporran train`.

use clap::Args;
use sporran_pipeline::registry;

use super::ConfigArgs;
use crate::{
    error::Result,
    outcome::{Context, Outcome},
};

/// `sporran train`
#[derive(Args)]
#[command(after_help = "Example: sporran train configs/extractor/ner-bilstm.toml")]
pub(crate) struct Train {
    #[command(flatten)]
    config: ConfigArgs,
}

impl Train {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let (path, overrides) = self.config.parts()?;
        Ok(registry::train(path, overrides, &mut context.observer())?.into())
    }
}
