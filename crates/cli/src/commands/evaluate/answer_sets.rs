//! `sporran evaluate answer-sets`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::scores::answer_set;

use super::figures::{self, check_scored, value};
use crate::{error::Result, outcome::Outcome, paths};

/// `sporran evaluate answer-sets`
#[derive(Args)]
#[command(
    after_help = "Example: sporran evaluate answer-sets runs/quickstart-reason/answer-sets/small_iid_test.jsonl\n\n\
                  A line is {\"id\", \"answers\": [..], \"predictions\": [..]}."
)]
pub(crate) struct AnswerSets {
    /// Answers and predictions, JSON lines
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// A `tokenizer.json` that splits answers into tokens; white space splits them by default
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    tokenizer: Option<PathBuf>,
}

impl AnswerSets {
    pub(crate) fn run(self) -> Result<Outcome> {
        check_scored(&self.file)?;
        let report = match &self.tokenizer {
            None => answer_set::evaluate(&self.file, answer_set::words)?.report,
            Some(file) => {
                paths::file(file)?;
                let tokenizer = Tokenizer::open(file)?;
                // A text that cannot be tokenised has no tokens to match.
                let tokens = |text: &str| tokenizer.encode_plain(text).unwrap_or_default();
                answer_set::evaluate(&self.file, tokens)?.report
            }
        };
        figures::outcome(&value(&report)?, &[])
    }
}
