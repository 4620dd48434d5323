//! The options of knowledge selection. The documentation of these types is the manual of the config file.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_training::{RankingLoss, TrainingOptions};
use sporran_transformers::DeviceName;

use super::data::Labels;
use crate::{Result, config::Config};
use sporran_config::{Document, kinds};

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

/// The options of a kind of reranker training.
pub trait RerankerTrainingKind {
    /// The model to start from.
    fn from(&self) -> Option<&Path> {
        None
    }

    /// Whether `[combine]` is allowed.
    fn combines(&self) -> bool {
        true
    }

    /// Reports wrong values and missing files. `key` is the path of the table.
    fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Some(from) = self.from() {
            document.check_checkpoint(&format!("{key}.from"), from);
        }
    }
}

/// Masked language modelling on the dialogues and sentences. The reranker compares vectors of the trained encoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct MaskedLmOptions(pub TunedOptions);

kinds! {
    /// `[reranker-training]`, by `kind`.
    pub enum RerankerTraining: dyn RerankerTrainingKind {
        /// `kind = "tfidf"`: tf-idf with the word counts of the training data. Makes a reranker of kind `tfidf`.
        "tfidf" => TfIdf(NoOptions),
        /// `kind = "cosine"`: the vectors of a frozen encoder. Makes a reranker of kind `cosine`, or with `[combine]` one of
        /// kind `combined`.
        "cosine" => Cosine(EncoderOptions),
        /// `kind = "masked-lm"`: the vectors of an encoder after masked language modelling on the dialogues and sentences.
        /// Makes a reranker of kind `cosine`.
        "masked-lm" => MaskedLm(MaskedLmOptions),
        /// `kind = "cross-encoder"`: an encoder that is trained to score pairs of a context and a sentence. Makes a reranker
        /// of kind `cross-encoder`, or with `[combine]` one of kind `combined`.
        "cross-encoder" => CrossEncoder(TunedOptions),
        /// `kind = "bi-encoder"`: an encoder that is trained to map a context close to its relevant sentences. Makes a
        /// reranker of kind `cosine`, or with `[combine]` one of kind `combined`.
        "bi-encoder" => BiEncoder(TunedOptions),
    }
}

impl RerankerTrainingKind for NoOptions {
    fn combines(&self) -> bool {
        false
    }
}

impl RerankerTrainingKind for EncoderOptions {
    fn from(&self) -> Option<&Path> {
        Some(&self.from)
    }
}

impl RerankerTrainingKind for TunedOptions {
    fn from(&self) -> Option<&Path> {
        Some(&self.from)
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Err(error) = self.optimizer.check() {
            document.report_key(&format!("{key}.optimizer"), error.to_string());
        }
        if let Err(error) = self.device.check(sporran_transformers::Precision::F32) {
            document.report_key(&format!("{key}.device"), error.to_string());
        }
        document.check_checkpoint(&format!("{key}.from"), &self.from);
    }
}

impl RerankerTrainingKind for MaskedLmOptions {
    fn from(&self) -> Option<&Path> {
        Some(&self.0.from)
    }

    fn combines(&self) -> bool {
        false
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        self.0.check(key, document);
    }
}

/// `kind = "tfidf"` has no options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoOptions {}

/// `kind = "cosine"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EncoderOptions {
    /// The model's folder: a model of sentence-transformers, or an encoder, whose hidden states are averaged.
    pub from: PathBuf,
    /// The largest number of tokens of a text. A longer dialogue loses its beginning.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
}

/// `kind = "masked-lm"`, `kind = "cross-encoder"` and `kind = "bi-encoder"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TunedOptions {
    /// The folder of the initial encoder.
    pub from: PathBuf,
    /// The largest number of tokens of a context and a sentence together. A longer context loses its beginning.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// The ranking loss: `listwise`, `pairwise`, `binary` or `margin-mse`.
    #[serde(default)]
    pub loss: RankingLoss,
    /// The largest number of sentences of a dialogue in an epoch, sampled again in each epoch. The default is all.
    #[schemars(extend("x-unit" = "sentences"))]
    pub candidates: Option<usize>,
    /// The factor of a bi-encoder's cosines in the loss.
    #[serde(default = "scale")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub scale: f64,
    /// `[reranker-training.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
    /// The device of the training: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
}

fn max_tokens() -> usize {
    256
}

fn scale() -> f64 {
    8.0
}

/// `[combine]`: a weighted sum of similarities, for the kinds `cross-encoder`, `bi-encoder` and `cosine`. Each similarity is
/// standardised to mean 0 and standard deviation 1 over the sentences of a dialogue. The weights are trained first, with a
/// listwise loss. A cross-encoder or bi-encoder is then trained with the sum as an offset, and its scores are added to the
/// sum. With the kind `cosine`, the sum is the score.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CombineOptions {
    /// Adds the tf-idf similarity of dialogue and sentence.
    pub tfidf: bool,
    /// Adds the tf-idf similarity of dialogue and title.
    pub title: bool,
    /// Adds the cosine of the initial encoder.
    pub cosine: bool,
    /// Adds the best and the mean `tfidf` and `cosine` over the sentences of the same article.
    pub article: bool,
    /// Numbers of last turns, such as `[1, 2]`. For each number, adds `tfidf`, `title` and `cosine` with these turns only.
    #[schemars(inner(range(min = 1)))]
    pub turns: Vec<usize>,
    /// Adds the mean cosine with the sentences of the dialogue. It needs `cosine`.
    pub central: bool,
    /// Adds 1 if the dialogue contains the title, and 0 otherwise.
    pub named: bool,
    /// Adds 1 for the first sentence of an article, 1/2 for the second, and so on.
    pub place: bool,
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
        let CombineOptions { tfidf, title, cosine, article, ref turns, central, .. } = self.combine;
        if central && !cosine {
            document.report_key("combine.central", "expected `cosine = true` as well");
        }
        if article && !cosine && !tfidf {
            document.report_key("combine.article", "expected `cosine = true` or `tfidf = true` as well");
        }
        if turns.contains(&0) {
            document.report_key("combine.turns", "expected numbers of at least 1, found 0");
        }
        if !(turns.is_empty() || cosine || tfidf || title) {
            document.report_key("combine.turns", "expected `cosine`, `tfidf` or `title` as well");
        }
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
