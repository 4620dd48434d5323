//! `sporran report`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_kilt::jsonl;
use sporran_pipeline::{Form, compare_runs};

use super::evaluate::Rounds;
use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::{Context, Outcome},
    paths,
};

/// `sporran report`
#[derive(Args)]
#[command(
    after_help = "Example: sporran report runs/quickstart runs/bm25 --form markdown --output report.md"
)]
pub(crate) struct ReportRuns {
    /// Folders of finished runs; the others are compared with the first
    #[arg(required = true, value_name = "RUN", value_hint = ValueHint::DirPath)]
    runs: Vec<PathBuf>,
    /// Format: text, markdown, latex, csv or html [default: text]
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    /// File to write; standard output by default
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    #[command(flatten)]
    rounds: Rounds,
}

impl ReportRuns {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        if context.json && (self.form.is_some() || self.output.is_some()) {
            return Err(Error::Usage("--json: cannot be combined with --form or --output".into()));
        }
        for run in &self.runs {
            paths::folder(run)?;
        }
        let comparison = compare_runs(&self.runs, self.rounds.value())?;
        let text = comparison.write(self.form.unwrap_or(Form::Text));
        match &self.output {
            Some(path) => {
                interrupt::keep(Kept::Output(path.clone()));
                jsonl::write(path, text.as_bytes())?;
                Ok(Outcome::default())
            }
            None => Outcome::new(text, &comparison),
        }
    }
}
