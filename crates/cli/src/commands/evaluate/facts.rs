//! `sporran evaluate facts`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use serde::Serialize;
use sporran_kilt::scores::extraction;
use sporran_pipeline::population;

use super::figures::{self, check_scored, value};
use crate::{
    error::{Error, Result},
    outcome::Outcome,
    paths,
};

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
    /// Both evaluations of the paper's table 3: text by overlapping spans, link by equal links
    TextAndLink,
}

impl Facts {
    pub(crate) fn run(self) -> Result<Outcome> {
        paths::file(&self.gold)?;
        check_scored(&self.guess)?;
        let evaluate =
            |method| Ok::<_, Error>(extraction::evaluate(&self.gold, &self.guess, method, self.fold)?);
        let report = match self.method {
            _ if self.errors => value(&population::errors(&self.gold, &self.guess, self.fold)?)?,
            Method::SpanExact => value(&evaluate(extraction::Method::SpanExact)?)?,
            Method::SpanOverlap => value(&evaluate(extraction::Method::SpanOverlap)?)?,
            Method::Uri => value(&evaluate(extraction::Method::Uri)?)?,
            Method::TextAndLink => {
                let text = evaluate(extraction::Method::SpanOverlap)?.total;
                value(&TextAndLink { text, link: evaluate(extraction::Method::Uri)?.total })?
            }
        };
        figures::outcome(&report, &[])
    }
}

/// The row of a system in KnowledgeNet's table 3 (Mesquita et al., 2019).
#[derive(Serialize)]
struct TextAndLink {
    text: extraction::Counts,
    link: extraction::Counts,
}
