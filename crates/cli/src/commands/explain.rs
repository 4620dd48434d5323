//! `sporran explain`.

use clap::{ArgGroup, Args};
use sporran_pipeline::Asked;

use super::ConfigArgs;
use crate::{
    error::Result,
    outcome::{Context, Outcome},
};

/// `sporran explain`
#[derive(Args)]
#[command(group = ArgGroup::new("asked").args(["id", "query"]).required(true), after_help = "Examples:\n  \
        sporran explain configs/quickstart.toml --id 5020000 --hits 3\n  \
        sporran explain configs/quickstart.toml --query \"who?\"")]
pub(crate) struct Explain {
    #[command(flatten)]
    config: ConfigArgs,
    /// The record's id in one of the config's task files
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// A text to answer instead of a record; the config needs no task files
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Number of hits to show for each retrieval step
    #[arg(long, default_value_t = 5, value_name = "N")]
    hits: usize,
}

impl Explain {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let (options, asked) = match (&self.query, &self.id) {
            (Some(text), _) => (self.config.load_without_tasks()?, Asked::Text(text)),
            (None, id) => (self.config.load()?, Asked::Record(id.as_deref().unwrap_or_default())),
        };
        let explanation = self.config.placed(sporran_pipeline::explain(
            &options,
            asked,
            self.hits,
            &mut context.observer(),
        ))?;
        Outcome::of(&explanation)
    }
}
