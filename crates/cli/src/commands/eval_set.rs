//! `sporran eval-set`: a test set out of a user's own documents.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde_json::json;
use sporran_kilt::{counted, jsonl::Writer};
use sporran_pipeline::workflows::answer::{AskOptions, EvalSet, Synthetic, eval_set};

use super::{ask::Sources, input::at_least_one};
use crate::{
    error::Result,
    interrupt::{self, Kept},
    outcome::{Context, Outcome},
    paths, settings,
};

/// `sporran eval-set`
#[derive(Args)]
#[command(after_help = "Example: sporran eval-set notes --output questions.jsonl --count 100\n\
                        \n\
                        The questions are synthetic: with --model a generator writes them about passages, otherwise \
                        sentences become questions. They compare retrievers over these documents. Scores on questions of people are \
                        usually lower, and only such questions show how good the answers are.")]
pub(crate) struct MakeEvalSet {
    #[command(flatten)]
    sources: Sources,
    /// The task file to write, in KILT's layout; .gz and .zst compress; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Maximum number of questions
    #[arg(long, default_value_t = 50, value_name = "N")]
    count: usize,
    /// Seed of random choices
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
}

impl MakeEvalSet {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        at_least_one("--count", self.count)?;
        let sources = self.sources.all();
        let named: Vec<PathBuf> = sources.iter().map(PathBuf::from).collect();
        paths::not_within(&self.output, &named)?;
        let (options, _) = self.sources.options(sources, context)?;
        interrupt::keep(Kept::Output(self.output.clone()));
        let make = |options: &AskOptions| {
            eval_set(options, self.count, self.seed, &mut context.observer())
                .map_err(|error| settings::blame(error.into(), &self.sources.users_keys()))
        };
        let (EvalSet { kind, records }, _) = settings::with_cache(options, context, make)?;
        let mut writer = Writer::create(&self.output)?;
        records.iter().try_for_each(|record| writer.record(record))?;
        writer.finish()?;
        let made = match kind {
            Synthetic::Sentence => "made of sentences of the documents",
            Synthetic::Generated => "written by the generator about passages",
        };
        let (count, output) = (records.len(), self.output.display());
        let text = format!(
            "{output}: {}, {made}\nThey compare retrievers. Scores on questions of people are \
             usually lower.",
            counted(count as u64, "synthetic question")
        );
        let report = json!({ "output": self.output, "questions": count, "synthetic": kind });
        Ok(Outcome::new(text, &report)?.aside())
    }
}
