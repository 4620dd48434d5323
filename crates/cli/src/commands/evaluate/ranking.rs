//! `sporran evaluate ranking`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde_json::{Map, Value, json};
use sporran_kilt::scores::{ranking, significance};

use super::{
    Rounds,
    figures::{self, check_scored, insert, value},
};
use crate::{error::Result, outcome::Outcome};

/// `sporran evaluate ranking`
#[derive(Args)]
#[command(
    after_help = "Example: sporran evaluate ranking runs/wowpp-tfidf/ranking.jsonl --threshold 0.6\n\n\
                  A line of a ranking is {\"id\", \"candidates\": [{\"id\", \"confidence\", \"score\"}]}."
)]
pub(crate) struct Ranking {
    /// Ranked candidates, JSON lines
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Minimum confidence of a relevant candidate
    #[arg(long, default_value_t = 0.6, value_name = "X", value_parser = share)]
    threshold: f64,
    /// Another ranking to compare with, by paired bootstrap and permutation tests
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    against: Option<PathBuf>,
    #[command(flatten)]
    rounds: Rounds,
}

/// A number from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

impl Ranking {
    /// The means of a ranking with their intervals, and a comparison with the other ranking if there is one.
    pub(crate) fn run(self) -> Result<Outcome> {
        check_scored(&self.file)?;
        self.against.as_deref().map_or(Ok(()), check_scored)?;
        let rounds = self.rounds.value();
        let found = ranking::evaluate(&self.file, self.threshold)?;
        let Some(other) = &self.against else {
            return figures::outcome(&with_intervals(&found, rounds)?, &[]);
        };
        let other = ranking::evaluate(other, self.threshold)?;
        let mut comparison = Map::new();
        for (name, mine, theirs) in found.paired(&other)? {
            let compared = significance::compare(&mine, &theirs, rounds)?;
            let entry = json!({ "difference": compared.difference, "p_value": compared.p_value });
            comparison.insert(name.into(), entry);
        }
        let (ranking, against) = (with_intervals(&found, rounds)?, with_intervals(&other, rounds)?);
        figures::outcome(&json!({ "ranking": ranking, "against": against, "comparison": comparison }), &[])
    }
}

fn with_intervals(found: &ranking::Evaluation, rounds: significance::Rounds) -> Result<Value> {
    let mut report = value(&found.report)?;
    let mut intervals = Map::new();
    // Without a scored query there is nothing to resample.
    if !found.records.is_empty() {
        for (name, scores, _) in found.paired(found)? {
            intervals.insert(name.into(), value(&significance::interval(&scores, rounds)?)?);
        }
    }
    insert(&mut report, "intervals", Value::Object(intervals));
    Ok(report)
}
