//! The options of knowledge selection. The documentation of these types is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Check, Document};
use sporran_reranker::training::{CombineOptions, RerankerTraining};

use super::data::Labels;
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
    /// The source of relevance labels: `crowd` (the annotators' confidence), or `gold` (1 for the sentence that the dialogue
    /// used and 0 for others, as in Wizard of Wikipedia).
    #[serde(default)]
    pub labels: Labels,
    /// The number of dialogues of `train` to use, sampled with the seed. The default is all.
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
    /// A second training file, with `gold` labels. It is not split into folds.
    pub original: Option<PathBuf>,
    /// The smallest confidence of a relevant sentence in scores.
    #[serde(default = "threshold")]
    #[schemars(range(min = 0, max = 1))]
    pub threshold: f64,
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

fn threshold() -> f64 {
    sporran_kilt::scores::ranking::RELEVANT
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
        for (key, path) in [("train", Some(&data.train)), ("original", data.original.as_ref())] {
            if let Some(path) = path.filter(|path| !path.is_file()) {
                document.report_key(&format!("data.{key}"), format!("no file {}", path.display()));
            }
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
    }
}
