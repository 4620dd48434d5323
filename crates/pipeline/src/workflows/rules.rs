//! Mining the rules of a knowledge base, and what they are worth for link prediction.

use std::{
    fmt,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_kilt::{
    jsonl,
    kb::{KnowledgeBase, Part},
};
use sporran_reasoner::{
    embedding::{LinkScores, evaluate},
    rules::{self, ApplyOptions, Graph, MineOptions, RuleBase, RuleScorer},
};

use crate::{
    Result,
    config::Config,
    observe::{Event, Observer, Unit, begin},
    run_dir::{manifest::TrainingEntry, training::TrainingFolder},
    workflows::workflow::{Outcome, Workflow},
};

/// A whole config of rule mining.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RulesOptions {
    /// `name`: the run's folder under `output`.
    pub name: String,
    /// `seed`: decides which paths are sampled.
    #[serde(default)]
    pub seed: u64,
    /// `output`: where runs' folders go.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `kb`: the knowledge base, a folder or a file of triples; rules are mined on its training part.
    pub kb: PathBuf,
    /// `model`: where the rules go, a text file; `rules.tsv` in the run's folder by default.
    pub model: Option<PathBuf>,
    /// `[rules]`: what is mined.
    pub rules: MineOptions,
    /// `[apply]`: how rules come together in predictions.
    #[serde(default)]
    pub apply: ApplyOptions,
}

impl Config for RulesOptions {
    const WORKFLOWS: &'static [&'static str] = &["rules"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        document.read_root(&[])
    }

    fn check(&self, document: &mut Document<'_>) {
        if !self.kb.exists() {
            document.report_key("kb", format!("no file or folder {}", self.kb.display()));
        }
        if let Err(error) = self.rules.check() {
            document.report_key("rules", error.to_string());
        }
    }
}

impl RulesOptions {
    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }
}

/// What mining gave.
#[derive(Clone, Debug, Serialize)]
pub struct Mined {
    /// Where the rules are.
    pub model: PathBuf,
    /// How many there are.
    pub rules: usize,
    /// Batches of samples.
    pub batches: usize,
    /// Filtered link prediction on the validation part, where there is one.
    pub valid: Option<LinkScores>,
    /// Filtered link prediction on the test part, where there is one.
    pub test: Option<LinkScores>,
}

impl fmt::Display for Mined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rules", self.rules)?;
        for (part, scores) in [("validation", &self.valid), ("test", &self.test)] {
            if let Some(scores) = scores {
                write!(
                    f,
                    "\n{part}: MRR {:.3}, hits@1 {:.3}, hits@3 {:.3}, hits@10 {:.3}",
                    scores.mrr, scores.hits_at_1, scores.hits_at_3, scores.hits_at_10
                )?;
            }
        }
        Ok(())
    }
}

/// Mines rules, writes them, and reports filtered link prediction with them alone, in `report.json` of the run's folder as
/// well.
///
/// # Errors
/// Whatever is wrong with the knowledge base or the files.
pub fn mine(options: &RulesOptions, observe: &mut Observer<'_>) -> Result<Mined> {
    let mut underway = TrainingFolder::begin(options.folder(), options, &["model", "apply"])?;
    let kb = KnowledgeBase::open(&options.kb)?;
    underway.verify()?;
    let graph = Graph::of(kb.triples(Part::Train));
    begin(observe, "mine rules", options.rules.batches as u64, Unit::Steps);
    let mut batches = 0;
    let found = rules::mine(&graph, &options.rules, options.seed, &mut |progress| {
        batches = progress.batches;
        let note = format!("{} rules of {} met", progress.rules, progress.evaluated);
        observe(Event::Advance { done: progress.batches as u64, note: Some(note) });
        ControlFlow::Continue(())
    })?;
    observe(Event::End);
    let model = options.model.clone().unwrap_or_else(|| options.folder().join("rules.tsv"));
    rules::save(&model, &found, &kb)?;
    let count = found.len();
    let scorer = RuleScorer::new(RuleBase::new(graph, found, options.apply), &kb);
    let known = kb.index(&Part::ALL);
    let mut judge = |part: Part| -> Result<Option<LinkScores>> {
        let triples = kb.triples(part);
        if triples.is_empty() {
            return Ok(None);
        }
        begin(observe, format!("predict {}", part.name()), triples.len() as u64, Unit::Records);
        let report = evaluate(&scorer, &kb, triples, &known)?;
        observe(Event::End);
        Ok(Some(report.all))
    };
    let (valid, test) = (judge(Part::Valid)?, judge(Part::Test)?);
    let mined = Mined { model, rules: count, batches, valid, test };
    jsonl::write_json(options.folder().join("report.json"), &mined)?;
    let best = mined.valid.as_ref().and_then(|scores| scores.mrr.value());
    underway.finish(TrainingEntry { steps: batches as u64, best })?;
    Ok(mined)
}

/// `workflow = "rules"`
pub(crate) const WORKFLOW: Workflow = Workflow::new::<RulesOptions>(
    "rules",
    "rules",
    "Mines rules from a knowledge base, and scores their predictions.",
    r#"name = "rules"
kb = "kb"
[rules]
"#,
)
.with_train(train);

fn train(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = RulesOptions::load(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let trained = mine(&options, observe)?;
    Ok(Outcome::of(&trained)?.with_model(&trained.model))
}
