//! `sporran evaluate answer-sets`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde::Serialize;
use sporran_checkpoint::Tokenizer;
use sporran_kilt::scores::{
    answer_set::{self, Scores},
    by_relation::{self, Relations},
};

use super::figures::{self, check_scored, value};
use crate::{
    error::{Error, Result},
    outcome::Outcome,
    paths,
};

/// `sporran evaluate answer-sets`
#[derive(Args)]
#[command(
    after_help = "Example: sporran evaluate answer-sets runs/quickstart-reason/answer-sets/small_iid_test.jsonl\n\n\
                  A line is {\"id\", \"answers\": [..], \"predictions\": [..]}."
)]
pub(crate) struct AnswerSets {
    /// Answers and predictions, JSON lines; the scores of several files are means over all their sets
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// A `tokenizer.json` that splits answers into tokens; white space splits them by default
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    tokenizer: Option<PathBuf>,
    /// Score each relation: a file of all questions in KoRC's layout with `relation`; repeatable, a split each
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    relations: Vec<PathBuf>,
}

impl AnswerSets {
    pub(crate) fn run(self) -> Result<Outcome> {
        self.files.iter().try_for_each(|path| check_scored(path))?;
        self.relations.iter().try_for_each(|path| paths::file(path))?;
        let tokenizer = match &self.tokenizer {
            None => None,
            Some(file) => {
                paths::file(file)?;
                Some(Tokenizer::open(file)?)
            }
        };
        let mut records = Vec::new();
        let mut report = Scores::default();
        for path in &self.files {
            let found = match &tokenizer {
                None => answer_set::evaluate(path, answer_set::words)?,
                // A text that cannot be tokenised has no tokens to match.
                Some(tokenizer) => {
                    answer_set::evaluate(path, |text| tokenizer.encode_plain(text).unwrap_or_default())?
                }
            };
            report = found.report;
            records.extend(found.records);
        }
        if self.files.len() > 1 {
            report = answer_set::means(&records);
        }
        if self.relations.is_empty() {
            return figures::outcome(&value(&report)?, &[]);
        }
        let scored = Relations::read(&self.relations)?.scores(&records).map_err(|id| {
            Error::Input(format!(
                "expected the questions of all answer sets in --relations, found none of id `{id}`"
            ))
        })?;
        Outcome::new(&scored, &ByRelation { scores: report, by_relation: &scored })
    }
}

/// The scores, and those of each relation.
#[derive(Serialize)]
struct ByRelation<'a> {
    #[serde(flatten)]
    scores: Scores,
    by_relation: &'a by_relation::Report,
}
