//! The training options of the BiLSTM. The documentation of this type is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_training::TrainingOptions;

use super::{BilstmShape, Directions};
use crate::{
    model_check::{BILSTM, check_start},
    relations::ThresholdFit,
};

/// The score of the validation documents by which the best weights are selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// The least loss.
    #[default]
    Loss,
    /// The greatest F1 of facts, with thresholds for these weights.
    F1,
}

/// The pairs that are positive examples of a fact. A pair that only overlaps one is no negative example either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Positives {
    /// Those whose mentions have the same spans as the fact's. Others that overlap them are no examples.
    #[default]
    Exact,
    /// Those whose mentions overlap the fact's.
    Overlapping,
}

/// `[relations.bilstm]`: the defaults are those of Mesquita et al. (2019).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BilstmTraining {
    /// `[relations.bilstm.shape]`: its inputs and sizes.
    pub shape: BilstmShape,
    /// A file of pretrained word vectors in the text format of GloVe or word2vec. They are not trained further, and the model's
    /// folder gets those of the words of the documents. Without it, words are hashed, and their vectors are trained.
    pub vectors: Option<PathBuf>,
    /// The number of words at the start of `vectors` that the model's folder also gets, for other texts.
    #[schemars(extend("x-unit" = "words"))]
    pub frequent_words: usize,
    /// The folder of a frozen encoder. A learned mixture of its layers is an input besides the words. Training copies the encoder
    /// into the model's folder.
    pub from: Option<PathBuf>,
    /// The pairs that are positive examples of a fact: `exact` or `overlapping`.
    pub positives: Positives,
    /// The share of pairs without a property that each epoch samples.
    #[schemars(range(min = 0, max = 1))]
    pub negatives: f64,
    /// The number of pairs in a batch. 0 makes batches of whole sentences with `optimizer.tokens-per-batch` tokens of pairs.
    #[schemars(extend("x-unit" = "pairs"))]
    pub pairs_per_batch: usize,
    /// The score that selects the weights: `loss` or `f1` on the validation documents.
    pub select: Selection,
    /// How thresholds are chosen: `plain`, the best of each property, or `smoothed`.
    pub thresholds: ThresholdFit,
    /// How the two directions of a pair are decided: `independent` or `joint`.
    pub directions: Directions,
    /// `[relations.bilstm.optimizer]`: epochs, batches, learning rate.
    pub optimizer: TrainingOptions,
}

impl Default for BilstmTraining {
    fn default() -> Self {
        Self {
            shape: BilstmShape::default(),
            vectors: None,
            frequent_words: 0,
            from: None,
            positives: Positives::default(),
            negatives: 1.0,
            pairs_per_batch: 128,
            select: Selection::default(),
            thresholds: ThresholdFit::default(),
            directions: Directions::default(),
            optimizer: TrainingOptions::default(),
        }
    }
}

impl BilstmTraining {
    /// Reports wrong values and, before a training, missing files. `key` is the path of the table.
    pub fn check(&self, key: &str, is_training: bool, document: &mut Document<'_>) {
        let key = |name: &str| format!("{key}.{name}");
        if let Err((name, message)) = self.shape.check() {
            document.report_key(&key(&format!("shape.{name}")), message);
        }
        if let Err(error) = self.optimizer.check() {
            document.report_key(&key("optimizer"), error.to_string());
        }
        if let Some(from) = self.from.as_ref().filter(|_| is_training) {
            check_start(BILSTM, &key("from"), from, document);
        }
        match &self.vectors {
            Some(path) if is_training && !path.is_file() => {
                document.report_key(&key("vectors"), format!("no file {}", path.display()));
            }
            None if self.frequent_words > 0 => {
                document.report_key(&key("frequent-words"), "expected `vectors` with it");
            }
            _ => {}
        }
    }
}
