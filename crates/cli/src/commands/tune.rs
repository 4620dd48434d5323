//! `sporran tune`.

use clap::Args;

use super::{ConfigArgs, print, print_json};
use crate::{error::Result, progress::Progress};

/// `sporran tune`
#[derive(Args)]
pub(crate) struct Tune {
    #[command(flatten)]
    config: ConfigArgs,
    /// Settings that are shown, the best first
    #[arg(long, default_value_t = 10, value_name = "N")]
    show: usize,
    /// Print the settings as one JSON array
    #[arg(long)]
    json: bool,
}

impl Tune {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        let options = self.config.load()?;
        let mut progress = Progress::new(quiet);
        let mut tried = sporran_pipeline::tune(&options, &mut |event| progress.event(event))?;
        tried.truncate(self.show);
        if self.json {
            return print_json(&tried);
        }
        let mut text = format!("{:>11} {:>9}  fusion\n", "R-precision", "recall@5");
        for one in &tried {
            let weights: Vec<String> = one.fusion.weights.iter().map(f32::to_string).collect();
            let method = serde_json::to_value(one.fusion.method).unwrap_or_default();
            text.push_str(&format!(
                "{:11.1} {:9.1}  method = {method}, weights = [{}]\n",
                100.0 * one.r_precision,
                100.0 * one.recall_at_5,
                weights.join(", ")
            ));
        }
        print(&text)
    }
}
