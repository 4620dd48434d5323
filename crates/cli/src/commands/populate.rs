//! `sporran populate`.

use clap::Args;
use sporran_pipeline::population::{PopulationOptions, PopulationReport, Purpose, populate};

use super::{ConfigArgs, print, print_json};
use crate::{error::Result, progress::Progress};

/// `sporran populate`
#[derive(Args)]
pub(crate) struct Populate {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

impl Populate {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        let options =
            PopulationOptions::load_for(&self.config.config, &self.config.overrides, Purpose::Populate)?;
        let mut progress = Progress::new(quiet);
        let report = populate(&options, &mut |event| progress.event(event))?;
        if self.json { print_json(&report) } else { print(&told(&report, &options)) }
    }
}

/// Counts by file and property, and where the outcome is.
pub(super) fn told(report: &PopulationReport, options: &PopulationOptions) -> String {
    let mut text = String::new();
    for file in &report.files {
        text.push_str(&format!(
            "{}: {} documents, {} sentences, {} facts, {} with both links\n",
            file.input.display(),
            file.documents,
            file.sentences,
            file.facts,
            file.linked
        ));
        for (property, count) in &file.properties {
            text.push_str(&format!("  {property} {count}\n"));
        }
    }
    text.push_str(&format!("predictions, triples and report: {}\n", options.folder().display()));
    text
}
