//! `sporran evaluate trec`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde_json::{Map, Value, json};
use sporran_kilt::counted;
use sporran_kilt::scores::{
    significance,
    trec::{self, Evaluation, Options, RankingMeasure},
};

use super::{
    Rounds,
    figures::{self, check_scored, insert, value},
};
use crate::{error::Result, outcome::Outcome};

/// The most missing queries that a note names.
const NAMED: usize = 10;

/// `sporran evaluate trec`
#[derive(Args)]
#[command(
    after_help = "Example: sporran evaluate trec --qrels scifact/qrels/test.tsv --run runs/scifact/retrieval/test.trec \\\n    \
                  --measures nDCG@10,R@100\n\n\
                  Measures: nDCG[@k], AP[@k], P@k, R@k, RR[@k], Rprec, Bpref, Success@k, infAP, SetP, SetR, SetF. All but nDCG \
                  take the lowest relevant grade, as in P(rel=2)@5.\n\
                  The figures are trec_eval's: scores are compared as 32-bit floats, and documents with equal scores are ordered by \
                  descending id."
)]
pub(crate) struct Trec {
    /// Judgements: TREC's `query 0 document grade`, or BEIR's qrels/<split>.tsv; plain, .gz or .zst
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    qrels: PathBuf,
    /// Run with lines of `query Q0 document rank score tag`, in any order; plain, .gz or .zst
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    run: PathBuf,
    /// Measures, by the names of ir_measures, with commas between them
    #[arg(long, default_value = "nDCG@10,AP,RR,P@10,R@100", value_name = "LIST")]
    measures: String,
    /// Count judged queries that the run lacks as 0, as trec_eval -c and ir_measures do
    #[arg(long)]
    complete: bool,
    /// Print the values of each query too
    #[arg(long)]
    per_query: bool,
    /// Leave out documents with the id of their query, as BEIR does
    #[arg(long)]
    exclude_self: bool,
    /// Another run to compare with, by paired bootstrap and permutation tests
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    against: Option<PathBuf>,
    #[command(flatten)]
    rounds: Rounds,
}

impl Trec {
    /// The means of a run, and a comparison with the other run if there is one.
    pub(crate) fn run(self) -> Result<Outcome> {
        check_scored(&self.qrels)?;
        check_scored(&self.run)?;
        if self.against.is_none() {
            self.rounds.check_unused()?;
        }
        self.against.as_deref().map_or(Ok(()), check_scored)?;
        let (complete, exclude_self) = (self.complete, self.exclude_self);
        let measures = RankingMeasure::list(&self.measures)?;
        let options = Options { complete, exclude_self, ..Options::new(measures) };
        let found = trec::evaluate(&self.qrels, &self.run, &options)?;
        let mut notes = self.notes(&found, &self.run);
        let report = self.report(&found)?;
        let Some(path) = &self.against else { return figures::outcome(&report, &notes) };
        let other = trec::evaluate(&self.qrels, path, &options)?;
        notes.extend(self.notes(&other, path));
        let rounds = self.rounds.value();
        let mut comparison = Map::new();
        // Without a scored query there is nothing to resample.
        if !found.queries.is_empty() {
            for (name, mine, theirs) in found.paired(&other)? {
                let compared = significance::compare(&mine, &theirs, rounds)?;
                let entry = json!({ "difference": compared.difference, "p_value": compared.p_value });
                comparison.insert(name.into(), entry);
            }
        }
        let against = self.report(&other)?;
        figures::outcome(&json!({ "run": report, "against": against, "comparison": comparison }), &notes)
    }

    fn report(&self, found: &Evaluation) -> Result<Value> {
        let mut report = Value::Object(Map::new());
        for (name, mean) in found.means() {
            insert(&mut report, name, value(&mean)?);
        }
        insert(&mut report, "queries", found.queries.len().into());
        insert(&mut report, "missing", value(&found.missing)?);
        if self.per_query {
            let mut queries = Map::new();
            for query in &found.queries {
                let names = found.measures.iter().map(RankingMeasure::name);
                let values = names.zip(&query.values).map(|(name, value)| (name.to_owned(), json!(value)));
                queries.insert(query.query.clone(), Value::Object(values.collect()));
            }
            insert(&mut report, "per_query", Value::Object(queries));
        }
        Ok(report)
    }

    fn notes(&self, found: &Evaluation, run: &Path) -> Vec<String> {
        let mut notes = Vec::new();
        if !found.missing.is_empty() {
            let named: Vec<&str> = found.missing.iter().take(NAMED).map(String::as_str).collect();
            let rest = if found.missing.len() > NAMED { ", .." } else { "" };
            let effect = if self.complete { "they count 0" } else { "they do not count; see --complete" };
            notes.push(format!(
                "{}: {} judged queries are missing: {}{rest}; {effect}",
                run.display(),
                found.missing.len(),
                named.join(", ")
            ));
        }
        if found.unjudged > 0 {
            notes.push(format!(
                "{}: {} without judgements; not counted",
                run.display(),
                counted(found.unjudged as u64, "query")
            ));
        }
        notes
    }
}
