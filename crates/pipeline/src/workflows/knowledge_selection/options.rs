//! What a config of knowledge selection says. These types' documentation is the manual of the config file.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_training::{RankingLoss, TrainingOptions};
use sporran_transformers::DeviceName;

use super::data::Labels;
use crate::{Result, config::Config};
use sporran_config::{Document, kinds};

/// A whole config of knowledge selection.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SelectionOptions {
    /// `name`: the run's folder under `output`.
    pub name: String,
    /// `seed`: decides everything that is drawn by chance.
    #[schemars(default)]
    pub seed: u64,
    /// `output`: where runs' folders go.
    #[schemars(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[data]`: what is learned from.
    pub data: DataOptions,
    /// `[reranker-training]`: the reranker to make, by `kind`.
    #[serde(rename = "reranker-training")]
    pub training: RerankerTraining,
    /// `[combine]`: what stands below a cross-encoder.
    #[schemars(default)]
    pub combine: CombineOptions,
}

/// The keys outside `[reranker-training]`.
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

/// `[data]`: dialogues with judged sentences, in WOW++'s layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DataOptions {
    /// The file that is learned from, and that folds are cut from.
    pub train: PathBuf,
    /// What tells how good its sentences are: `crowd` (the judges' confidence) or `gold` (1 for the sentence that the
    /// dialogue used, as in the original Wizard of Wikipedia, 0 for others).
    #[serde(default)]
    pub labels: Labels,
    /// Only so many dialogues of it, drawn by the seed.
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
    /// A second file to learn from, by its `gold` sentences; it is never cut into folds.
    pub original: Option<PathBuf>,
    /// A confidence from this on counts as relevant in scores.
    #[serde(default = "threshold")]
    #[schemars(range(min = 0, max = 1))]
    pub threshold: f64,
    /// Parts for cross-validation over dialogues; dialogues that begin alike are in one part.
    #[schemars(range(min = 2))]
    pub folds: Option<usize>,
    /// Only this fold, counted from 0: it is left out of training and ranked; without it each fold in its turn.
    pub fold: Option<usize>,
    /// Of so many dialogues that are learned from, one judges each pass over the data, and the best weights are kept;
    /// 0 keeps the last weights.
    #[serde(default)]
    pub judge_every: usize,
}

fn threshold() -> f64 {
    sporran_kilt::scores::ranking::RELEVANT
}

/// What the options of every kind of reranker training do.
pub trait RerankerTrainingKind {
    /// The model to start from.
    fn from(&self) -> Option<&Path> {
        None
    }

    /// Whether similarities of `[combine]` can be added.
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

/// An encoder that learns the masked tokens of the dialogues; then its vectors are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct MaskedLmOptions(pub TunedOptions);

kinds! {
    /// `[reranker-training]`, by `kind`.
    pub enum RerankerTraining: dyn RerankerTrainingKind {
        /// `kind = "tfidf"`: words, weighted by how rare they are in the training file. Makes a reranker of kind `tfidf`.
        "tfidf" => TfIdf(NoOptions),
        /// `kind = "cosine"`: the vectors of an encoder that is not trained. Makes a reranker of kind `cosine`, or with
        /// `[combine]` one of kind `combined`.
        "cosine" => Cosine(EncoderOptions),
        /// `kind = "masked-lm"`: the vectors of an encoder that is trained on the masked tokens of the dialogues. Makes a
        /// reranker of kind `cosine`.
        "masked-lm" => MaskedLm(MaskedLmOptions),
        /// `kind = "cross-encoder"`: an encoder that is trained to score a context together with a sentence. Makes a reranker
        /// of kind `cross-encoder`, or with `[combine]` one of kind `combined`.
        "cross-encoder" => CrossEncoder(TunedOptions),
        /// `kind = "bi-encoder"`: an encoder that is trained to map a context near its relevant sentences. Makes a reranker of
        /// kind `cosine`, or with `[combine]` one of kind `combined`.
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
    /// The model's folder: that of sentence-transformers, or a bare encoder's, whose states are averaged.
    pub from: PathBuf,
    /// Tokens of a text, at most; a dialogue loses its beginning.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
}

/// `kind = "masked-lm"`, `kind = "cross-encoder"` and `kind = "bi-encoder"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TunedOptions {
    /// The folder of the encoder to start from.
    pub from: PathBuf,
    /// Tokens of context and sentence together, at most; the context loses its beginning.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// A ranking loss: `listwise`, `pairwise`, `binary` or `margin-mse`.
    #[serde(default)]
    pub loss: RankingLoss,
    /// Sentences of a dialogue that one pass shows, at most; drawn anew for each.
    #[schemars(extend("x-unit" = "sentences"))]
    pub candidates: Option<usize>,
    /// What a bi-encoder's cosines are multiplied by before the loss is taken.
    #[serde(default = "scale")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub scale: f64,
    /// `[reranker-training.optimizer]`: passes, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
    /// Where it trains: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
}

fn max_tokens() -> usize {
    256
}

fn scale() -> f64 {
    8.0
}

/// `[combine]`: similarities that stand below a cross-encoder or a bi-encoder, or that are all there is beside `cosine`. Each
/// is brought to mean 0 and deviation 1 among a dialogue's sentences, their weights are learned from the training dialogues first (listwise), and the model then learns what their
/// sum misses; its scores are added to the sum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CombineOptions {
    /// Tf-idf of dialogue and sentence.
    pub tfidf: bool,
    /// Tf-idf of dialogue and title.
    pub title: bool,
    /// The cosine of the encoder that the model starts from.
    pub cosine: bool,
    /// For each of `tfidf` and `cosine` the best and the mean of a sentence's article as well.
    pub article: bool,
    /// Tf-idf and cosine with the last turns alone as well: how many, for each such window.
    #[schemars(inner(range(min = 1)))]
    pub turns: Vec<usize>,
    /// The mean cosine with the other sentences; it goes with `cosine`.
    pub central: bool,
    /// Whether the dialogue has the title's words.
    pub named: bool,
    /// Where a sentence stands among those of its article.
    pub place: bool,
}

/// The table of the training.
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
            (None, Some(_)) => document.report_key("data.folds", "is missing; `fold` goes with it"),
            _ => {}
        }
        if data.judge_every == 1 {
            document.report_key("data.judge-every", "expected 0 or at least 2, found 1");
        }
        self.training.check(TRAINING, document);
        if self.combine != CombineOptions::default() && !self.training.combines() {
            let message =
                "expected a `[reranker-training]` of kind `cosine`, `cross-encoder` or `bi-encoder` with it";
            document.report_key("combine", message);
        }
        let CombineOptions { tfidf, title, cosine, article, ref turns, central, .. } = self.combine;
        if central && !cosine {
            document.report_key("combine.central", "expected `cosine = true` beside it");
        }
        if article && !cosine && !tfidf {
            document.report_key("combine.article", "expected `cosine = true` or `tfidf = true` beside it");
        }
        if turns.contains(&0) {
            document.report_key("combine.turns", "expected numbers of at least 1, found 0");
        }
        if !(turns.is_empty() || cosine || tfidf || title) {
            document.report_key("combine.turns", "expected `cosine`, `tfidf` or `title` beside it");
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
    fn every_mistake_is_told_with_its_key() {
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
