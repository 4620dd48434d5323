//! Mining of rules from a knowledge base, and their scores in link prediction.

use std::{
    fmt,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_kilt::{
    counted, jsonl,
    kb::{KnowledgeBase, Part},
    observe::{Event, Observer, Unit, begin},
};
use sporran_reasoner::{
    embedding::{LinkScores, evaluate},
    rules::{self, ApplyOptions, Graph, MineOptions, RuleBase, RuleScorer},
};

use crate::{
    Result,
    config::Config,
    run_dir::{manifest::TrainingEntry, training::TrainingFolder},
    workflows::workflow::{Outcome, Workflow},
};

/// A whole config of rule mining.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RulesOptions {
    /// `name`: the name of the run's folder in `output`.
    pub name: String,
    /// `seed`: the seed of the sampled paths.
    #[serde(default)]
    pub seed: u64,
    /// `output`: the parent folder of runs.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `kb`: the knowledge base, a folder or a file of triples; rules are mined on its training part.
    pub kb: PathBuf,
    /// `model`: the text file of the rules. The default is `rules.tsv` in the run's folder.
    pub model: Option<PathBuf>,
    /// `[rules]`: options of mining.
    pub rules: MineOptions,
    /// `[apply]`: how predictions of several rules are combined.
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

    /// The file of the rules.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.model.clone().unwrap_or_else(|| self.folder().join("rules.tsv"))
    }
}

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct MiningReport {
    /// The file of the rules.
    pub model: PathBuf,
    /// The number of rules.
    pub rules: usize,
    /// The number of sampled batches.
    pub batches: usize,
    /// Filtered link prediction on the validation part; `None` without one.
    pub valid: Option<LinkScores>,
    /// Filtered link prediction on the test part; `None` without one.
    pub test: Option<LinkScores>,
}

impl fmt::Display for MiningReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.rules as u64, "rule"))?;
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

/// Mines and saves rules. Scores filtered link prediction by the rules, and writes `report.json`.
///
/// # Errors
/// Errors of the knowledge base or the files.
pub fn mine(options: &RulesOptions, observe: &mut Observer<'_>) -> Result<MiningReport> {
    let mut underway =
        TrainingFolder::begin(options.folder(), options, &["model", "apply"])?.writing(&options.file());
    let kb = KnowledgeBase::open(&options.kb)?;
    underway.verify()?;
    let graph = Graph::of(kb.triples(Part::Train));
    begin(observe, "mine rules", options.rules.batches as u64, Unit::Steps);
    let mut batches = 0;
    let found = rules::mine(&graph, &options.rules, options.seed, &mut |progress| {
        batches = progress.batches;
        let note = format!(
            "{} of {}",
            counted(progress.rules as u64, "rule"),
            counted(progress.evaluated as u64, "candidate")
        );
        observe(Event::Advance { done: progress.batches as u64, note: Some(note) });
        ControlFlow::Continue(())
    })?;
    observe(Event::End);
    let model = options.file();
    rules::save(&model, &found, &kb)?;
    let count = found.len();
    let scorer = RuleScorer::new(RuleBase::new(graph, found, options.apply), &kb);
    let known = kb.index(&Part::ALL);
    let mut evaluate_part = |part: Part| -> Result<Option<LinkScores>> {
        let triples = kb.triples(part);
        if triples.is_empty() {
            return Ok(None);
        }
        begin(observe, format!("predict {}", part.name()), triples.len() as u64, Unit::Records);
        let report = evaluate(&scorer, &kb, triples, &known)?;
        observe(Event::End);
        Ok(Some(report.all))
    };
    let (valid, test) = (evaluate_part(Part::Valid)?, evaluate_part(Part::Test)?);
    let mined = MiningReport { model, rules: count, batches, valid, test };
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
