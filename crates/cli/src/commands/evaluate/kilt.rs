//! `sporran evaluate kilt`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde_json::{Map, Value, json};
use sporran_kilt::scores::{PerRecord, kilt, provenance::RankKeys, retrieval, significance, whole};

use super::{
    Rounds,
    figures::{self, check_scored, insert, value},
};
use crate::{error::Result, outcome::Outcome, paths};

/// `sporran evaluate kilt`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran evaluate kilt --gold examples/minikilt/kilt/nq-dev-kilt.jsonl \\\n    \
        --guess runs/quickstart/predictions/nq-dev-kilt.jsonl")]
pub(crate) struct Kilt {
    /// Gold file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    gold: PathBuf,
    /// Predictions
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    guess: PathBuf,
    /// Score evidence only, at several depths
    #[arg(long, conflicts_with = "whole", group = "depths")]
    retrieval: bool,
    /// Score answers, and evidence at several depths, in one pass over both files
    #[arg(long, group = "depths")]
    whole: bool,
    /// Depths of the ranking, for --retrieval and --whole
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,5,10,20",
        value_name = "K,..",
        requires = "depths"
    )]
    ks: Vec<usize>,
    /// Fields that identify an item of evidence, for --retrieval and --whole; repeat the option to score several
    #[arg(long, default_value = "wikipedia_id", value_name = "FIELD,..", requires = "depths")]
    rank_keys: Vec<RankKeys>,
    /// Other predictions to compare with, by paired bootstrap and permutation tests
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    against: Option<PathBuf>,
    #[command(flatten)]
    rounds: Rounds,
}

/// A file of predictions, scored.
struct Scored {
    /// The means under their names.
    report: Value,
    /// The scores of each record, by the kind of evidence; those of answers have an empty name.
    records: Vec<(String, PerRecord)>,
    /// Notes on how to read the means.
    notes: Vec<String>,
}

impl Kilt {
    pub(crate) fn run(self) -> Result<Outcome> {
        paths::file(&self.gold)?;
        check_scored(&self.guess)?;
        if self.against.is_none() {
            self.rounds.check_unused()?;
        }
        self.against.as_deref().map_or(Ok(()), check_scored)?;
        let scored = self.score(&self.guess)?;
        let Some(other) = &self.against else { return figures::outcome(&scored.report, &scored.notes) };
        let against = self.score(other)?;
        let comparison = self.compare(&scored.records, &against.records)?;
        let named = |path: &Path, notes: Vec<String>| -> Vec<String> {
            notes.into_iter().map(|note| format!("{}: {note}", path.display())).collect()
        };
        let notes = [named(&self.guess, scored.notes), named(other, against.notes)].concat();
        let report = json!({ "guess": scored.report, "against": against.report, "comparison": comparison });
        figures::outcome(&report, &notes)
    }

    fn score(&self, guess: &Path) -> Result<Scored> {
        let options = retrieval::Options { ks: self.ks.clone(), rank_keys: self.rank_keys.clone() };
        let mut notes = Vec::new();
        let (report, records) = if self.whole {
            let found = whole::evaluate(&self.gold, guess, &options)?;
            let mut report = value(&found.answers.report)?;
            let (evidence, mut records) = reports(found.evidence, &mut notes)?;
            insert(&mut report, "evidence", evidence);
            records.insert(0, (String::new(), found.answers.records));
            (report, records)
        } else if self.retrieval {
            let found = retrieval::evaluate(&self.gold, guess, &options)?;
            reports(found, &mut notes)?
        } else {
            let found = kilt::evaluate(&self.gold, guess)?;
            let mut report = value(&found.report)?;
            insert(&mut report, "depth", value(&found.depth)?);
            notes.extend(found.depth.note("pages"));
            (report, vec![(String::new(), found.records)])
        };
        Ok(Scored { report, records, notes })
    }

    /// For each score: both means with their intervals, the difference with its interval, and its p-value.
    fn compare(&self, first: &[(String, PerRecord)], second: &[(String, PerRecord)]) -> Result<Value> {
        let rounds = self.rounds.value();
        let mut comparison = Map::new();
        for ((keys, first), (_, second)) in first.iter().zip(second) {
            for name in first.names() {
                let (Some(a), Some(b)) = (first.column(name), second.column(name)) else { continue };
                let compared = significance::compare(&a, &b, rounds)?;
                let entry = json!({
                    "guess": significance::interval(&a, rounds)?,
                    "against": significance::interval(&b, rounds)?,
                    "difference": compared.difference,
                    "p_value": compared.p_value,
                });
                // Scores of answers have no keys. Scores of evidence get a label if there are several kinds, or answers too.
                let label = if !keys.is_empty() && (self.rank_keys.len() > 1 || self.whole) {
                    format!("{keys} {name}")
                } else {
                    name.clone()
                };
                comparison.insert(label, entry);
            }
        }
        Ok(Value::Object(comparison))
    }
}

/// The means of each kind of evidence, and the scores of each record. One kind gives a flat report, several give one object
/// each. A report holds the depth of the predictions. Notes name the `ks` that exceed it.
fn reports(
    found: retrieval::Evaluation,
    notes: &mut Vec<String>,
) -> Result<(Value, Vec<(String, PerRecord)>)> {
    let mut reports = Map::new();
    let mut records = Vec::new();
    let single = found.reports.len() == 1;
    for ((report, per_record), depth) in found.reports.into_iter().zip(&found.depths) {
        let keys = report.rank_keys.to_string();
        let mut flat = value(&report)?;
        insert(&mut flat, "depth", value(depth)?);
        let items = if report.rank_keys == RankKeys::page() { "pages" } else { "places" };
        let named = |note| if single { note } else { format!("{keys}: {note}") };
        notes.extend(depth.note(items).map(named));
        reports.insert(keys.clone(), flat);
        records.push((keys, per_record));
    }
    let flat = if reports.len() == 1 { reports.values().next().cloned() } else { None };
    Ok((flat.unwrap_or(Value::Object(reports)), records))
}
