//! `sporran populate`.

use clap::Args;

use super::{ConfigArgs, run};
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
        run::populate(&self.config, context)
    }
}
