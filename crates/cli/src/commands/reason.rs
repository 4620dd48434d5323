//! `sporran reason`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde::Serialize;
use sporran_kilt::jsonl::plain_json;
use sporran_pipeline::{
    Config, kbqa,
    link_prediction::{AskOptions, LinkAnswer, LinkPredictor, LinkQuestion},
};

use super::{ConfigArgs, input::Lines};
use crate::{
    error::Result,
    interrupt::{self, Kept},
    outcome::{Context, Outcome},
    paths,
};

/// `sporran reason`
#[derive(Args)]
#[command(
    after_help = "Examples:\n  \
        sporran reason configs/quickstart-reason.toml\n  \
        sporran reason --kb examples/minikilt/kb --links models/minikilt-kb --json < triples.jsonl\n\
        \n\
        With --json, a config prints one prediction per line, and --kb prints {\"answers\": [..]} for each line.",
    override_usage = "sporran reason [OPTIONS] CONFIG [KEY=VALUE]...\n       sporran reason [OPTIONS] --kb DIR"
)]
pub(crate) struct Reason {
    #[command(flatten)]
    config: Option<ConfigArgs>,
    /// Complete triples from standard input over this knowledge base (a folder or a file of triples). A line is
    /// {"subject", "relation"} or {"relation", "object"}
    #[arg(long, value_name = "DIR", conflicts_with = "config", required_unless_present = "config", value_hint = ValueHint::AnyPath)]
    kb: Option<PathBuf>,
    /// Folder of an embedding or a network that `sporran train` wrote
    #[arg(long, value_name = "DIR", requires = "kb", value_hint = ValueHint::DirPath)]
    links: Option<PathBuf>,
    /// Rules that `sporran train` mined; with --links too, the model answers and the rules only explain
    #[arg(long, value_name = "FILE", requires = "kb", value_hint = ValueHint::FilePath)]
    rules: Option<PathBuf>,
    /// Answers per question
    #[arg(long, value_name = "N", requires = "kb", default_value_t = 10)]
    answers: usize,
    /// Supporting chains per answer: rules with their triples, or paths of a network
    #[arg(long, value_name = "N", requires = "kb", default_value_t = 3)]
    chains: usize,
    /// Also give answers that are in the training triples
    #[arg(long, requires = "kb")]
    known: bool,
}

/// Lines to read before the first one is answered.
const LINES: usize = 16;

#[derive(Serialize)]
struct Answered {
    answers: Vec<LinkAnswer>,
}

impl Reason {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        match (&self.config, &self.kb) {
            (Some(config), _) => run_config(config, context),
            (None, Some(kb)) => self.complete(kb, context),
            // clap requires one of the two.
            (None, None) => Ok(Outcome::default()),
        }
    }

    fn complete(&self, kb: &Path, context: &Context) -> Result<Outcome> {
        paths::file_or_folder(kb)?;
        self.links.as_deref().map_or(Ok(()), paths::folder)?;
        self.rules.as_deref().map_or(Ok(()), paths::file)?;
        let options = AskOptions { answers: self.answers, chains: self.chains, known: self.known };
        let predictor = LinkPredictor::open(kb, self.links.as_deref(), self.rules.as_deref())?;
        let parse = |line: String| {
            let expected = "expected {\"subject\" or \"object\": name, \"relation\": name}";
            if line.trim().is_empty() {
                return Err(format!("{expected}, found a blank line"));
            }
            let question: LinkQuestion = serde_json::from_str(&line).map_err(|error| {
                // The caller names the line of the input. The question is the first line of its own text.
                let wrong = plain_json(&error.to_string()).replace("(line 1, column ", "(column ");
                format!("{expected}: {wrong}")
            })?;
            predictor.resolve(&question)
        };
        Lines::stdin(LINES).each_portion(parse, |questions| {
            for answers in predictor.ask(questions, options)? {
                context.row(&Answered { answers }, |answered| completed(&answered.answers))?;
            }
            Ok(())
        })?;
        Ok(Outcome::default())
    }
}

fn run_config(config: &ConfigArgs, context: &Context) -> Result<Outcome> {
    let (path, overrides) = config.parts()?;
    let options = kbqa::ReasonOptions::load(path, overrides)?;
    interrupt::keep(Kept::Folder(options.folder()));
    let mut predictions = Vec::new();
    let reasoned = kbqa::reason(&options, &mut context.observer(), &mut |record| {
        if context.json {
            predictions.push(record.clone());
        }
    })?;
    Ok(Outcome::list(&reasoned, &predictions)?.with_model(&reasoned.model))
}

/// Answers with their supporting chains; an empty line follows them.
fn completed(answers: &[LinkAnswer]) -> String {
    let mut text = String::new();
    for answer in answers {
        text.push_str(&format!("{}\t{}\t{:.4}\n", answer.entity, answer.label, answer.score));
        for chain in &answer.chains {
            let triples: Vec<String> =
                chain.labels.iter().map(|[s, r, o]| format!("({s}, {r}, {o})")).collect();
            let rule = chain.rule.as_ref().map_or_else(String::new, |rule| format!("{rule}: "));
            text.push_str(&format!("\t{:.3}\t{rule}{}\n", chain.weight, triples.join(" ")));
        }
    }
    text
}
