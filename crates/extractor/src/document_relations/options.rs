//! The options of the training. The documentation of these types is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_training::{TrainingOptions, session::WeightDtype};

use crate::model_check::{DOCUMENTS, check_start};

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

impl DocumentsTraining {
    /// Reports wrong values and missing files, without loading a model. `key` is the path of the table. A model
    /// that `is_trained` runs without its training files and its initial encoder.
    pub fn check(&self, key: &str, is_trained: bool, document: &mut Document<'_>) {
        let key = |name: &str| format!("{key}.{name}");
        if self.files.is_empty() {
            document.report_key(&key("files"), "expected at least one file");
        }
        if !is_trained {
            document.check_files(&key("files"), &self.files);
            check_start(DOCUMENTS, &key("from"), &self.from, document);
        }
        for (name, part) in [("group-size", self.group_size), ("heads", self.heads)] {
            if part == 0 || self.hidden_size == 0 || !self.hidden_size.is_multiple_of(part) {
                let message =
                    format!("expected a divisor of `hidden-size` ({}), found {part}", self.hidden_size);
                document.report_key(&key(name), message);
            }
        }
        if let Err(error) = self.optimizer.check() {
            document.report_key(&key("optimizer"), error.to_string());
        }
    }
}
