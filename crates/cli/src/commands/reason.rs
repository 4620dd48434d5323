//! `sporran reason`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use sporran_pipeline::{
    Config, korc,
    links::{AskOptions, Asker, LinkAnswer, LinkQuestion},
};

use super::{ConfigArgs, input::Lines, print, print_json};
use crate::{error::Result, progress::Progress};

/// `sporran reason`
#[derive(Args)]
pub(crate) struct Reason {
    #[command(flatten)]
    config: Option<ConfigArgs>,
    /// Complete the triples of standard input, lines of {"subject", "relation"} or {"relation", "object"}, over this knowledge base: a
    /// folder or a file of triples
    #[arg(long, value_name = "DIR", conflicts_with = "config", required_unless_present = "config")]
    kb: Option<PathBuf>,
    /// By the embedding or network of this folder, which `train` made
    #[arg(long, value_name = "DIR", requires = "kb")]
    links: Option<PathBuf>,
    /// By these rules, which `train` mined; beside a model they only tell more of its answers
    #[arg(long, value_name = "FILE", requires = "kb")]
    rules: Option<PathBuf>,
    /// Answers of a question
    #[arg(long, value_name = "N", requires = "kb", default_value_t = 10)]
    answers: usize,
    /// Chains that speak for an answer: rules with their triples, or a network's paths
    #[arg(long, value_name = "N", requires = "kb", default_value_t = 3)]
    chains: usize,
    /// Give answers too that the training part has already
    #[arg(long, requires = "kb")]
    known: bool,
    /// Print one JSON object a line: each prediction of a config in the place of the scores, or {"answers": [..]} for each question
    #[arg(long)]
    json: bool,
}

/// Lines that are read before the first of them is answered.
const LINES: usize = 16;

#[derive(Serialize)]
struct Answered {
    answers: Vec<LinkAnswer>,
}

impl Reason {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        match (&self.config, &self.kb) {
            (Some(config), _) => self.run_config(config, quiet),
            (None, Some(kb)) => self.complete(kb),
            (None, None) => Ok(()),
        }
    }

    fn complete(&self, kb: &Path) -> Result<()> {
        let options = AskOptions { answers: self.answers, chains: self.chains, known: self.known };
        let asker = Asker::open(kb, self.links.as_deref(), self.rules.as_deref())?;
        let parse = |line: String| {
            let question: LinkQuestion = serde_json::from_str(&line).map_err(|error| {
                format!("expected {{\"subject\" or \"object\": name, \"relation\": name}}: {error}")
            })?;
            asker.resolve(&question)
        };
        Lines::stdin(LINES).each_portion(parse, |questions| {
            for answers in asker.ask(questions, options)? {
                if self.json {
                    print_json(&Answered { answers })?;
                } else {
                    print(&completed(&answers))?;
                }
            }
            Ok(())
        })
    }

    fn run_config(&self, config: &ConfigArgs, quiet: bool) -> Result<()> {
        let mut progress = Progress::new(quiet);
        let options = korc::ReasonOptions::load(&config.config, &config.overrides)?;
        let mut lines = Vec::new();
        let reasoned = korc::reason(&options, &mut |event| progress.event(event), &mut |record| {
            if self.json {
                lines.push(record.clone());
            }
        })?;
        if self.json { lines.iter().try_for_each(print_json) } else { print(&told(&reasoned)) }
    }
}

/// Answers with what speaks for them, and an empty line.
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
    text.push('\n');
    text
}

/// Scores in percent, and where the predictions are.
pub(super) fn told(reasoned: &korc::Reasoned) -> String {
    let mut text = String::new();
    if let Some(steps) = reasoned.steps {
        let valid =
            reasoned.valid.map_or_else(String::new, |valid| format!(", valid P-F1 {:.1}", valid * 100.0));
        text.push_str(&format!("{steps} steps{valid}\n"));
    }
    text.push_str(&format!("model: {}\n", reasoned.model.display()));
    for tested in &reasoned.tests {
        let scores = tested.scores.map_or_else(String::new, |scores| {
            format!("P-ACC {:.1}, P-F1 {:.1}, ", scores.p_acc * 100.0, scores.p_f1 * 100.0)
        });
        text.push_str(&format!(
            "{}: {scores}{} questions, {}\n",
            tested.test,
            tested.questions,
            tested.predictions.display()
        ));
    }
    text
}
