//! `sporran explain`.

use clap::Args;

use super::{ConfigArgs, print, print_json};
use crate::{error::Result, progress::Progress};

/// `sporran explain`
#[derive(Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    config: ConfigArgs,
    /// The record's id in one of the config's task files
    #[arg(long, value_name = "ID")]
    id: String,
    /// Hits that are shown at each step of retrieval
    #[arg(long, default_value_t = 5, value_name = "N")]
    hits: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        let options = self.config.load()?;
        let mut progress = Progress::new(quiet);
        let found =
            sporran_pipeline::explain(&options, &self.id, self.hits, &mut |event| progress.event(event))?;
        if self.json { print_json(&found) } else { print(&found.to_string()) }
    }
}
