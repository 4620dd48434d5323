//! `sporran populate`.

use clap::Args;
use sporran_pipeline::{registry, shards};

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
        if let Some(shard) = self.shard.get()? {
            return done(&shards::populate_shard(path, overrides, shard, &mut context.observer())?);
        }
        Ok(registry::run_as("population", path, overrides, &mut context.observer())?.into())
    }
}
