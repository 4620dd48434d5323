//! `sporran populate`.

use clap::Args;
use sporran_pipeline::registry;

use super::{
    ConfigArgs,
    shard::{ShardArgs, done},
};
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
    #[command(flatten)]
    shard: ShardArgs,
}

impl Populate {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let (path, overrides) = self.config.parts()?;
        let observe = &mut context.observer();
        match self.shard.get()? {
            Some(shard) => done(&registry::run_shard_as("population", path, overrides, shard, observe)?),
            None => Ok(registry::run_as("population", path, overrides, observe)?.into()),
        }
    }
}
