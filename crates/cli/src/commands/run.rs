//! `sporran run` and `sporran retrieve`.

use clap::Args;
use sporran_pipeline::Report;

use super::{ConfigArgs, print, print_json};
use crate::{error::Result, progress::Progress};

/// `sporran run`
#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

impl Run {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        let options = self.config.load()?;
        let mut progress = Progress::new(quiet);
        let report = sporran_pipeline::run(&options, &mut |event| progress.event(event))?;
        show(&report, &options, self.json)
    }
}

/// `sporran retrieve`
#[derive(Args)]
pub(crate) struct Retrieve {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only show how the ranking of one record comes about: what was asked at each step, and what was found
    #[arg(long, value_name = "ID")]
    trace: Option<String>,
    /// Hits that the trace shows at each step
    #[arg(long, default_value_t = 10, requires = "trace", value_name = "N")]
    hits: usize,
    /// Print the report, or the trace, as one JSON object
    #[arg(long)]
    json: bool,
}

impl Retrieve {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        let options = self.config.load()?;
        let mut progress = Progress::new(quiet);
        if let Some(id) = &self.trace {
            let trace = sporran_pipeline::trace(&options, id, self.hits, &mut |event| progress.event(event))?;
            return if self.json { print_json(&trace) } else { print(&trace.to_string()) };
        }
        let report = sporran_pipeline::retrieve(&options, &mut |event| progress.event(event))?;
        show(&report, &options, self.json)
    }
}

fn show(report: &Report, options: &sporran_pipeline::Options, json: bool) -> Result<()> {
    if json {
        return print_json(report);
    }
    let folder = options.general.output.join(&report.name);
    print(&format!("{}\npredictions, report and manifest: {}\n", report.table(), folder.display()))
}
