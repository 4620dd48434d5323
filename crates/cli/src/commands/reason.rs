//! `sporran reason`.

use clap::Args;

use sporran_pipeline::korc;

use super::{ConfigArgs, print, print_json};
use crate::{error::Result, progress::Progress};

/// `sporran reason`
#[derive(Args)]
pub(crate) struct Reason {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print each prediction as one JSON object a line, in the place of the scores
    #[arg(long)]
    json: bool,
}

impl Reason {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        let mut progress = Progress::new(quiet);
        let options = korc::ReasonOptions::load(&self.config.config, &self.config.overrides)?;
        let mut lines = Vec::new();
        let reasoned = korc::reason(&options, &mut |event| progress.event(event), &mut |record| {
            if self.json {
                lines.push(record.clone());
            }
        })?;
        if self.json { lines.iter().try_for_each(print_json) } else { print(&told(&reasoned)) }
    }
}

/// Scores in percent, and where the predictions are.
pub(super) fn told(reasoned: &korc::Reasoned) -> String {
    let mut text = String::new();
    if let Some(steps) = reasoned.steps {
        let valid =
            reasoned.valid.map_or_else(String::new, |valid| format!(", valid P-F1 {:.1}", valid * 100.0));
        text.push_str(&format!("{steps} steps{valid}\n"));
    }
    text.push_str(&format!("model: {}\n", reasoned.model.display()));
    for tested in &reasoned.tests {
        let scores = tested.scores.map_or_else(String::new, |scores| {
            format!("P-ACC {:.1}, P-F1 {:.1}, ", scores.p_acc * 100.0, scores.p_f1 * 100.0)
        });
        text.push_str(&format!(
            "{}: {scores}{} questions, {}\n",
            tested.test,
            tested.questions,
            tested.predictions.display()
        ));
    }
    text
}
