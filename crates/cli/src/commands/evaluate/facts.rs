//! `sporran evaluate facts`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use sporran_kilt::scores::extraction;
use sporran_pipeline::population;

use super::figures::{self, check_scored, value};
use crate::{error::Result, outcome::Outcome, paths};

/// `sporran evaluate facts`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran evaluate facts --gold examples/minikilt/knowledgenet/train.json \\\n    \
        --guess runs/quickstart-kbp/knowledgenet/train.json --fold 4")]
pub(crate) struct Facts {
    /// Gold file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    gold: PathBuf,
    /// The same documents with predicted facts
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    guess: PathBuf,
    /// How a predicted fact matches a gold one
    #[arg(long, value_enum, default_value_t = Method::SpanOverlap, value_name = "METHOD")]
    method: Method,
    /// Only the documents of this fold
    #[arg(long, value_name = "N")]
    fold: Option<i64>,
    /// Count missed and wrong facts by property and by cause
    #[arg(long)]
    errors: bool,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Method {
    /// Equal spans
    SpanExact,
    /// Overlapping spans
    SpanOverlap,
    /// Equal links
    Uri,
}

impl From<Method> for extraction::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::SpanExact => Self::SpanExact,
            Method::SpanOverlap => Self::SpanOverlap,
            Method::Uri => Self::Uri,
        }
    }
}

impl Facts {
    pub(crate) fn run(self) -> Result<Outcome> {
        paths::file(&self.gold)?;
        check_scored(&self.guess)?;
        let report = if self.errors {
            value(&population::errors(&self.gold, &self.guess, self.fold)?)?
        } else {
            value(&extraction::evaluate(&self.gold, &self.guess, self.method.into(), self.fold)?)?
        };
        figures::outcome(&report, &[])
    }
}
