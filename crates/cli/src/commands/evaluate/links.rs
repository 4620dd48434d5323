//! `sporran evaluate links`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use sporran_kilt::kb;
use sporran_pipeline::link_prediction;

use super::figures::{self, value};
use crate::{error::Result, outcome::Outcome, paths};

/// `sporran evaluate links`
#[derive(Args)]
#[command(
    after_help = "Example: sporran evaluate links models/minikilt-kb --kb examples/minikilt/kb --part train"
)]
pub(crate) struct Links {
    /// Folder of an embedding or a network
    #[arg(value_name = "MODEL", value_hint = ValueHint::DirPath)]
    model: PathBuf,
    /// Knowledge base that the model was trained on
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    kb: PathBuf,
    /// Mined rules; ranks by a weighted sum of the model's and the rules' scores, with weights chosen on validation triples
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    rules: Option<PathBuf>,
    /// Triples to rank
    #[arg(long, value_enum, default_value_t = Part::Test, value_name = "PART")]
    part: Part,
    /// Also score triple classification on hard negatives, with thresholds chosen on the validation triples
    #[arg(long)]
    classification: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    Train,
    Valid,
    Test,
}

impl From<Part> for kb::Part {
    fn from(part: Part) -> Self {
        match part {
            Part::Train => Self::Train,
            Part::Valid => Self::Valid,
            Part::Test => Self::Test,
        }
    }
}

impl Links {
    pub(crate) fn run(self) -> Result<Outcome> {
        sporran_pipeline::check_finished(&self.model)?;
        paths::folder(&self.model)?;
        paths::file_or_folder(&self.kb)?;
        self.rules.as_deref().map_or(Ok(()), paths::file)?;
        let report = link_prediction::evaluate(
            &self.model,
            &self.kb,
            self.part.into(),
            self.classification,
            self.rules.as_deref(),
        )?;
        figures::outcome(&value(&report)?, &[])
    }
}
