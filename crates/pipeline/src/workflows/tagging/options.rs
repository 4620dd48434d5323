//! The options of a tagger's training. The documentation of these types is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Check, Document, kinds};
use sporran_extractor::tagger::WordFeatures;
use sporran_training::{TrainingOptions, session::WeightDtype};
use sporran_transformers::DeviceName;

use crate::config::Config;

/// The config of a tagger's training.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TaggingOptions {
    /// `name`: the name of the run's folder in `output`.
    pub name: String,
    /// `seed`: the seed of all random choices.
    #[schemars(default)]
    pub seed: u64,
    /// `output`: the parent folder of runs.
    #[schemars(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[annotations]`: the training data.
    pub annotations: AnnotationOptions,
    /// `[tagger]`: the model, by `kind`.
    pub tagger: TaggerKind,
    /// `[test]`: the test data, for scores of the trained tagger.
    #[schemars(default)]
    pub test: TestOptions,
}

/// The keys outside of `[tagger]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct General {
    name: String,
    #[serde(default)]
    seed: u64,
    #[serde(default = "crate::config::runs")]
    output: PathBuf,
    annotations: AnnotationOptions,
    #[serde(default)]
    test: TestOptions,
}

/// `[annotations]`: documents with annotated mentions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AnnotationOptions {
    /// Files in DocRED's layout, in which all names and dates are annotated.
    pub docred: Vec<PathBuf>,
    /// Files in KnowledgeNet's layout, in which only the names and dates of facts are annotated. The loss ignores the labels of
    /// all other tokens.
    pub knowledgenet: Vec<PathBuf>,
    /// The folds of KnowledgeNet to use; empty for all.
    pub folds: Vec<i64>,
    /// Every n-th document of `docred` is held out for validation: for the score of each epoch. The best weights are kept.
    /// 0 trains on all documents and keeps the last weights.
    pub validation_every: usize,
    /// `[annotations.weak-labels]`: texts with the labels of another tagger.
    pub weak_labels: Option<WeakLabelOptions>,
}

/// `[annotations.weak-labels]`: texts without annotations, labelled by a larger tagger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WeakLabelOptions {
    /// The folder of the tagger that labels the texts.
    pub teacher: PathBuf,
    /// Pages in KILT's layout.
    pub pages: PathBuf,
    /// The number of pages to use, the first ones.
    #[schemars(range(min = 1))]
    pub limit: usize,
}

/// `[test]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TestOptions {
    /// Files in DocRED's layout, for precision, recall and F1 of typed spans.
    pub docred: Vec<PathBuf>,
    /// Files in KnowledgeNet's layout, for the recall of the names and dates of facts.
    pub knowledgenet: Vec<PathBuf>,
    /// The folds of KnowledgeNet to use; empty for all.
    pub folds: Vec<i64>,
}

kinds! {
    /// `[tagger]`, by `kind`.
    pub enum TaggerKind: dyn Check {
        /// `kind = "encoder-crf"`: an encoder with a conditional random field.
        "encoder-crf" => EncoderCrf(EncoderOptions),
        /// `kind = "bilstm-crf"`: a BiLSTM over hashed words and their parts, with a conditional random field.
        "bilstm-crf" => BilstmCrf(BiLstmOptions),
    }
}

impl Check for EncoderOptions {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        document.check_checkpoint(&format!("{key}.from"), &self.from);
        if let Err(error) = self.device.check(sporran_transformers::Precision::F32) {
            document.report_key(&format!("{key}.device"), error.to_string());
        }
        check_optimizer(&self.optimizer, key, document);
    }
}

impl Check for BiLstmOptions {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_optimizer(&self.optimizer, key, document);
    }
}

fn check_optimizer(optimizer: &TrainingOptions, key: &str, document: &mut Document<'_>) {
    if let Err(error) = optimizer.check() {
        document.report_key(&format!("{key}.optimizer"), error.to_string());
    }
}

/// `kind = "encoder-crf"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EncoderOptions {
    /// The folder of the initial encoder.
    pub from: PathBuf,
    /// The largest number of tokens of a window. A longer sentence has several windows.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// Whether token types mark capitals, for encoders with a lower-casing tokenizer and a second token type.
    #[serde(default = "marks_case")]
    pub marks_case: bool,
    /// The number format of the saved weights: `f32` or `f16`.
    #[serde(default)]
    pub dtype: WeightDtype,
    /// `[tagger.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
    /// The device of the training: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
}

fn max_tokens() -> usize {
    160
}

fn marks_case() -> bool {
    true
}

/// `kind = "bilstm-crf"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BiLstmOptions {
    /// `[tagger.features]`: the table of hashed embeddings.
    #[serde(default)]
    pub features: WordFeatures,
    /// The hidden size of each direction.
    #[serde(default = "hidden_size")]
    #[schemars(range(min = 1))]
    pub hidden_size: usize,
    /// The number of layers.
    #[serde(default = "layers")]
    #[schemars(range(min = 1), extend("x-unit" = "layers"))]
    pub layers: usize,
    /// The dropout rate of inputs and hidden states.
    #[serde(default = "dropout")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// The number format of the saved weights: `f32` or `f16`.
    #[serde(default)]
    pub dtype: WeightDtype,
    /// `[tagger.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

fn hidden_size() -> usize {
    96
}

fn layers() -> usize {
    2
}

fn dropout() -> f64 {
    0.3
}

impl Config for TaggingOptions {
    const WORKFLOWS: &'static [&'static str] = &["tagging"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        let tagger = document.require_stage("tagger");
        let General { name, seed, output, annotations, test } = document.read_root(&["tagger"])?;
        Some(Self { name, seed, output, annotations, tagger: tagger.ok()?, test })
    }

    fn check(&self, document: &mut Document<'_>) {
        let (training, test) = (&self.annotations, &self.test);
        let lists = [
            ("annotations.docred", &training.docred),
            ("annotations.knowledgenet", &training.knowledgenet),
            ("test.docred", &test.docred),
            ("test.knowledgenet", &test.knowledgenet),
        ];
        for (key, paths) in lists {
            for path in paths.iter().filter(|path| !path.is_file()) {
                document.report_key(key, format!("no file {}", path.display()));
            }
        }
        if training.docred.is_empty() && training.knowledgenet.is_empty() && training.weak_labels.is_none() {
            document.report_key(
                "annotations",
                "expected `docred`, `knowledgenet` or `weak-labels`, found none of them",
            );
        }
        if training.validation_every == 1 {
            document.report_key("annotations.validation-every", "expected 0 or at least 2, found 1");
        }
        if let Some(weak) = &training.weak_labels {
            document.check_folder("annotations.weak-labels.teacher", &weak.teacher, "tagger.json");
            if !weak.pages.is_file() {
                document
                    .report_key("annotations.weak-labels.pages", format!("no file {}", weak.pages.display()));
            }
        }
        self.tagger.check("tagger", document);
    }
}

impl TaggingOptions {
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
        mistakes(text, overrides, TaggingOptions::load)
    }

    #[test]
    fn every_mistake_is_reported_with_its_key() {
        let text = "workflow = \"tagging\"\nname = \"r\"\n[annotations]\ndocred = [\"none.json\"]\nvalidation-every = 1\n\
                    [annotations.weak-labels]\nteacher = \"t\"\npages = \"p\"\nlimit = 3\n\
                    [tagger]\nkind = \"encoder-crf\"\nfrom = \"m\"\noptimizer.learning-rate = 0\n";
        let found = check(text, &[]);
        for expected in [
            "`annotations.docred`: no file none.json",
            "`annotations.validation-every`: expected 0 or at least 2, found 1",
            "`annotations.weak-labels.teacher`: no folder t",
            "`annotations.weak-labels.pages`: no file p",
            "`tagger.from`: no folder m",
            "learning-rate",
        ] {
            assert!(found.contains(expected), "{expected}: {found}");
        }
        let words = "workflow = \"tagging\"\nname = \"r\"\n[annotations]\n[tagger]\nkind = \"bilstm-crf\"\nhidden-size = 0\n";
        let found = check(words, &["tagger.dropout=1.0"]);
        for expected in [
            "`annotations`: expected `docred`",
            "`tagger.hidden-size`: expected at least 1",
            "tagger.dropout",
        ] {
            assert!(found.contains(expected), "{expected}: {found}");
        }
        assert!(check(words, &["tagger.kind=bilstm"]).contains("did you mean `bilstm-crf`?"));
    }
}
