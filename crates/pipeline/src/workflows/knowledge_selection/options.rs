//! The options of knowledge selection. The documentation of these types is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Check, Document};
use sporran_reranker::training::{CombineOptions, RerankerTraining};

use super::{
    cutoff::{Negatives, Threshold},
    data::Labels,
};
use crate::config::Config;

/// The config of a knowledge selection.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SelectionOptions {
    /// `name`: the name of the run's folder in `output`.
    pub name: String,
    /// `seed`: the seed of all random choices.
    #[schemars(default)]
    pub seed: u64,
    /// `output`: the parent folder of runs.
    #[schemars(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[data]`: the training data.
    pub data: DataOptions,
    /// `[reranker-training]`: the reranker to train, by `kind`.
    #[serde(rename = "reranker-training")]
    pub training: RerankerTraining,
    /// `[combine]`: similarities that are added to the scores of the model.
    #[schemars(default)]
    pub combine: CombineOptions,
}

/// The keys outside of `[reranker-training]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct General {
    name: String,
    #[serde(default)]
    seed: u64,
    #[serde(default = "crate::config::runs")]
    output: PathBuf,
    data: DataOptions,
    #[serde(default)]
    combine: CombineOptions,
}

/// `[data]`: dialogues with annotated sentences, in WOW++'s layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DataOptions {
    /// The training file, which is also split into folds.
    pub train: PathBuf,
    /// The source of relevance labels: `crowd` (the annotators' confidence), `relevant` (1 from the confidence `threshold`, 0 for
    /// others), or `gold` (1 for the dialogue's `gold_sentence` and 0 for others, as in Wizard of Wikipedia). With `gold`, dialogues
    /// without a gold sentence are not used.
    #[serde(default)]
    pub labels: Labels,
    /// The number of other sentences of a dialogue with `gold` labels, also in `original`: a number, drawn once with the seed; `all`; or
    /// `match`, with which a dialogue has as many pairs as annotated sentences.
    #[serde(default)]
    pub negatives: Negatives,
    /// The number of dialogues of `train` to use, sampled with the seed. The default is all.
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
    /// A second training file, with `gold` labels. It is not split into folds.
    pub original: Option<PathBuf>,
    /// The smallest confidence of a relevant sentence, in the labels `relevant` and in scores: a number, or `third-quartile`, that of
    /// all sentences in `train`.
    #[serde(default)]
    pub threshold: Threshold,
    /// The test file of topics that are in the training data. The trained reranker ranks it into `ranking-test-seen.jsonl`.
    pub test_seen: Option<PathBuf>,
    /// The test file of topics that are not in the training data. The trained reranker ranks it into `ranking-test-unseen.jsonl`.
    pub test_unseen: Option<PathBuf>,
    /// The number of folds of a cross-validation over dialogues. Dialogues with the same topic and first turn are in the same
    /// fold.
    #[schemars(range(min = 2))]
    pub folds: Option<usize>,
    /// The only fold to run, counted from 0. Its dialogues are held out of training and ranked. The default is all folds.
    pub fold: Option<usize>,
    /// Every n-th training dialogue is held out for validation: for the score of each epoch. The best weights are kept.
    /// 0 trains on all dialogues and keeps the last weights.
    #[serde(default)]
    pub validation_every: usize,
}

impl DataOptions {
    /// The test files, by the names of their keys.
    pub(super) fn tests(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let both = [("test-unseen", &self.test_unseen), ("test-seen", &self.test_seen)];
        both.into_iter().filter_map(|(name, path)| Some((name, path.as_ref()?)))
    }
}

/// The table of the training's options.
const TRAINING: &str = "reranker-training";

impl Config for SelectionOptions {
    const WORKFLOWS: &'static [&'static str] = &["knowledge-selection"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        let training = document.require_stage(TRAINING);
        let General { name, seed, output, data, combine } = document.read_root(&[TRAINING])?;
        Some(Self { name, seed, output, data, training: training.ok()?, combine })
    }

    fn check(&self, document: &mut Document<'_>) {
        let data = &self.data;
        let original = data.original.iter().map(|path| ("original", path));
        for (key, path) in std::iter::once(("train", &data.train)).chain(original).chain(data.tests()) {
            if !path.is_file() {
                document.report_key(&format!("data.{key}"), format!("no file {}", path.display()));
            }
        }
        if data.folds.is_some() {
            for (key, _) in data.tests() {
                document.report_key(&format!("data.{key}"), "expected no test file with `folds`, found one");
            }
        }
        if data.negatives != Negatives::All && data.labels != Labels::Gold && data.original.is_none() {
            document.report_key("data.negatives", "expected `labels = \"gold\"` or `original` as well");
        }
        match (data.folds, data.fold) {
            (Some(folds), Some(fold)) if fold >= folds => {
                document.report_key("data.fold", format!("expected a number below {folds}, found {fold}"));
            }
            (None, Some(_)) => document.report_key("data.folds", "is missing; `fold` needs it"),
            _ => {}
        }
        if data.validation_every == 1 {
            document.report_key("data.validation-every", "expected 0 or at least 2, found 1");
        }
        self.training.check(TRAINING, document);
        if self.combine != CombineOptions::default() && !self.training.combines() {
            let message =
                "expected a `[reranker-training]` of kind `cosine`, `cross-encoder` or `bi-encoder`";
            document.report_key("combine", message);
        }
        self.combine.check("combine", document);
    }
}

impl SelectionOptions {
    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::mistakes;

    fn check(text: &str, overrides: &[&str]) -> String {
        mistakes(text, overrides, SelectionOptions::load)
    }

    #[test]
    fn every_mistake_is_reported_with_its_key() {
        let text = "workflow = \"knowledge-selection\"\nname = \"r\"\n[data]\ntrain = \"none.json\"\nfolds = 5\nfold = 5\n\
                    [reranker-training]\nkind = \"cross-encoder\"\nfrom = \"m\"\noptimizer.learning-rate = 0\n";
        let found = check(text, &[]);
        for expected in [
            "`data.train`: no file none.json",
            "`data.fold`: expected a number below 5, found 5",
            "`reranker-training.from`: no folder m",
            "learning-rate",
        ] {
            assert!(found.contains(expected), "{expected}: {found}");
        }
        assert!(check(text, &["combine.cosin=true"]).contains("did you mean `cosine`?"));
        assert!(
            check(text, &["reranker-training.kind=crossencoder"]).contains("did you mean `cross-encoder`?")
        );
        let words = "workflow = \"knowledge-selection\"\nname = \"r\"\n[data]\ntrain = \"none.json\"\n[reranker-training]\nkind = \"tfidf\"\n";
        assert!(
            check(words, &["combine.title=true"]).contains("`combine`: expected a `[reranker-training]`")
        );
        assert!(check(words, &["data.fold=1"]).contains("`data.folds`: is missing"));
        assert!(
            check(words, &["data.negatives=1"]).contains("`data.negatives`: expected `labels = \"gold\"`")
        );
        let gold = check(words, &["data.negatives=1", "data.labels=gold"]);
        assert!(!gold.contains("data.negatives"), "{gold}");
        let tests = check(words, &["data.test-seen=seen.json", "data.folds=5"]);
        assert!(tests.contains("`data.test-seen`: no file seen.json"), "{tests}");
        assert!(tests.contains("`data.test-seen`: expected no test file with `folds`"), "{tests}");
        assert!(check(words, &["data.threshold=1.5"]).contains("`data.threshold`: expected"));
        assert!(check(words, &["data.threshold=median"]).contains("a number or \"third-quartile\""));
        assert!(check(words, &["data.negatives=0"]).contains("a whole number of at least 1"));
        assert!(!check(words, &["data.threshold=third-quartile"]).contains("data.threshold"));
    }
}
