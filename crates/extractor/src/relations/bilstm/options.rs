//! The training options of the BiLSTM. The documentation of this type is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_training::TrainingOptions;

use super::BilstmShape;

use crate::model_check::{BILSTM, check_start};

/// `[relations.bilstm]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BilstmTraining {
    /// `[relations.bilstm.shape]`: its inputs and sizes.
    pub shape: BilstmShape,
    /// The folder of a frozen encoder. A learned mixture of its layers replaces the word embeddings. Training
    /// copies the encoder into the model's folder.
    pub from: Option<PathBuf>,
    /// The share of pairs without a property that each epoch samples.
    #[schemars(range(min = 0, max = 1))]
    pub negatives: f64,
    /// `[relations.bilstm.optimizer]`: epochs, batches, learning rate.
    pub optimizer: TrainingOptions,
}

impl Default for BilstmTraining {
    fn default() -> Self {
        let (shape, optimizer) = (BilstmShape::default(), TrainingOptions::default());
        Self { shape, from: None, negatives: 1.0, optimizer }
    }
}

impl BilstmTraining {
    /// Reports wrong values and, before a training, a missing encoder. `key` is the path of the table.
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
    }
}
