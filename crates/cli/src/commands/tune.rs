//! `sporran tune`.

use std::fmt::Write as _;

use clap::Args;

use super::ConfigArgs;
use crate::{
    error::Result,
    outcome::{Context, Outcome},
};

/// `sporran tune`
#[derive(Args)]
#[command(after_help = "Example: sporran tune configs/retrieval/hybrid.toml --show 5")]
pub(crate) struct Tune {
    #[command(flatten)]
    config: ConfigArgs,
    /// Number of settings to show, best first
    #[arg(long, default_value_t = 10, value_name = "N")]
    show: usize,
}

impl Tune {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let options = self.config.load()?;
        let mut trials = self.config.placed(sporran_pipeline::tune(&options, &mut context.observer()))?;
        trials.truncate(self.show);
        let measure = trials.first().and_then(|trial| trial.measure.as_ref());
        let mut text = measure.map_or_else(String::new, |(name, _)| format!("{name:>5} "));
        text += &format!("{:>11} {:>9}  fusion\n", "R-precision", "recall@5");
        for trial in &trials {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{trial}");
        }
        Outcome::new(text, &trials)
    }
}
