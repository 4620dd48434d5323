//! `sporran train`.

use clap::Args;

use sporran_pipeline::selection;

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
        let mut progress = Progress::new(quiet);
        if selection::is_selection(&self.config.config, &self.config.overrides)? {
            let options = selection::SelectionOptions::load(&self.config.config, &self.config.overrides)?;
            let fitted = selection::train(&options, &mut |event| progress.event(event))?;
            return if self.json { print_json(&fitted) } else { print(&told(&fitted)) };
        }
        let options = self.config.load()?;
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

fn told(fitted: &selection::Fitted) -> String {
    let mut text = format!("{} steps\n", fitted.steps);
    for model in &fitted.models {
        text.push_str(&format!("model: {}\n", model.display()));
    }
    if let Some(ranking) = &fitted.ranking {
        text.push_str(&format!("ranking: {}\n", ranking.display()));
    }
    text
}
