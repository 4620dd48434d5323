//! `sporran explain`.

use clap::Args;

use super::ConfigArgs;
use crate::{
    error::Result,
    outcome::{Context, Outcome},
};

/// `sporran explain`
#[derive(Args)]
#[command(after_help = "Example: sporran explain configs/quickstart.toml --id 5020000 --hits 3")]
pub(crate) struct Explain {
    #[command(flatten)]
    config: ConfigArgs,
    /// The record's id in one of the config's task files
    #[arg(long, value_name = "ID")]
    id: String,
    /// Number of hits to show for each retrieval step
    #[arg(long, default_value_t = 5, value_name = "N")]
    hits: usize,
}

impl Explain {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let options = self.config.load()?;
        let explanation = sporran_pipeline::explain(&options, &self.id, self.hits, &mut context.observer())?;
        Outcome::of(&explanation)
    }
}
