//! `sporran train`.

use clap::Args;

use super::{ConfigArgs, print, print_json};
use crate::{error::Result, progress::Progress};

/// `sporran train`
#[derive(Args)]
pub(crate) struct Train {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
}

impl Train {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        let options = self.config.load()?;
        let mut progress = Progress::new(quiet);
        let trained = sporran_pipeline::train(&options, &mut |event| progress.event(event))?;
        if self.json {
            return print_json(&trained);
        }
        let best = trained.best.map_or_else(String::new, |(step, score)| {
            format!(", best at step {step} with a mean score of {:.1} on the judged records", score * 100.0)
        });
        print(&format!("{} steps{best}\nmodel: {}\n", trained.steps, trained.model.display()))
    }
}
