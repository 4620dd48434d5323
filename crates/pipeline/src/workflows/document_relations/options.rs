//! The options of document-level relations. The documentation of these types is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_training::{TrainingOptions, session::WeightDtype};
use sporran_transformers::{DeviceName, Precision};

use crate::{
    config::Config,
    source::{options::SourceOptions, pages},
};

/// A whole config of document-level relations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DocumentsOptions {
    /// `name`: the name of the run's folder in `output`.
    pub name: String,
    /// `seed`: the seed of all random choices.
    #[serde(default)]
    pub seed: u64,
    /// `output`: the parent folder of runs.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[source]`: the knowledge source with the documents' pages, by title. Without it, predictions have no provenance.
    pub source: Option<SourceOptions>,
    /// `[document-relations]`: the model and its input.
    pub document_relations: DocumentRelationsOptions,
}

/// `[document-relations]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DocumentRelationsOptions {
    /// The folder of the model. Training writes it, and `sporran run` reads it. The default is `model` in the run's folder.
    pub model: Option<PathBuf>,
    /// Input files of `sporran run`, in DocRED's layout. Files with gold relations are scored.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// The device: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The precision of the computation: `f32`, or `int8` on a CPU.
    #[serde(default)]
    pub precision: Precision,
    /// `[document-relations.training]`: the training of the model.
    pub training: Option<DocumentsTraining>,
}

/// `[document-relations.training]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DocumentsTraining {
    /// The folder of the initial encoder.
    pub from: PathBuf,
    /// Training files in DocRED's layout.
    pub files: Vec<PathBuf>,
    /// Every n-th document is held out for validation: for the threshold and the score of each epoch.
    #[serde(default = "validation_every")]
    #[schemars(range(min = 2))]
    pub validation_every: usize,
    /// The largest number of tokens of a window of a document.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 128), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// The size of the projections of the two entities.
    #[serde(default = "hidden_size")]
    #[schemars(range(min = 1))]
    pub hidden_size: usize,
    /// The group size of the grouped bilinear classifier. It divides `hidden-size`.
    #[serde(default = "group_size")]
    #[schemars(range(min = 1))]
    pub group_size: usize,
    /// The number of attention heads for the context of both entities. It divides `hidden-size`.
    #[serde(default = "heads")]
    #[schemars(range(min = 1))]
    pub heads: usize,
    /// The dropout rate of the classifier.
    #[serde(default = "dropout")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// The weight of the loss of evidence sentences, relative to that of relations. 0 trains no evidence.
    #[serde(default = "evidence")]
    #[schemars(range(min = 0))]
    pub evidence: f64,
    /// The share of word pieces to mask in each epoch. Masking reduces overfitting to names.
    #[serde(default)]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub mask_probability: f64,
    /// The number format of the saved weights: `f32` or `f16`.
    #[serde(default)]
    pub dtype: WeightDtype,
    /// `[document-relations.training.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

fn validation_every() -> usize {
    10
}

fn max_tokens() -> usize {
    512
}

fn hidden_size() -> usize {
    384
}

fn group_size() -> usize {
    32
}

fn heads() -> usize {
    6
}

fn dropout() -> f64 {
    0.1
}

fn evidence() -> f64 {
    0.1
}

impl Config for DocumentsOptions {
    const WORKFLOWS: &'static [&'static str] = &["document-relations"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        document.read_root(&[])
    }

    fn check(&self, document: &mut Document<'_>) {
        let options = &self.document_relations;
        let key = |name: &str| format!("document-relations.{name}");
        pages::check(self.source.as_ref(), ("source", None), document);
        document.check_inputs(&key("files"), &options.files);
        if let Err(error) = options.device.check(options.precision) {
            document.report_key(&key("device"), error.to_string());
        }
        let Some(training) = &options.training else { return };
        // A trained model runs without its training data.
        let is_made = self.model().join("config.json").is_file();
        let key = |name: &str| format!("document-relations.training.{name}");
        if training.files.is_empty() {
            document.report_key(&key("files"), "expected at least one file");
        }
        if !is_made {
            document.check_files(&key("files"), &training.files);
            document.check_checkpoint(&key("from"), &training.from);
        }
        for (name, part) in [("group-size", training.group_size), ("heads", training.heads)] {
            if part == 0 || training.hidden_size == 0 || !training.hidden_size.is_multiple_of(part) {
                let message =
                    format!("expected a divisor of `hidden-size` ({}), found {part}", training.hidden_size);
                document.report_key(&key(name), message);
            }
        }
        if let Err(error) = training.optimizer.check() {
            document.report_key(&key("optimizer"), error.to_string());
        }
    }
}

impl DocumentsOptions {
    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }

    /// The model's folder.
    #[must_use]
    pub fn model(&self) -> PathBuf {
        self.document_relations.model.clone().unwrap_or_else(|| self.folder().join("model"))
    }
}
