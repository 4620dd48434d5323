//! The training options of an encoder over marked mentions. The documentation of these types is the manual of the
//! config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_training::{TrainingOptions, session::WeightDtype};

use crate::model_check::{MARKED, check_start};

/// `[relations.training]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MarkedTraining {
    /// The folder of the initial encoder. Without it, `encoder` has the sizes of an encoder with random weights.
    pub from: Option<PathBuf>,
    /// `[relations.training.encoder]`: the sizes of an encoder with random weights.
    pub encoder: Option<FreshEncoder>,
    /// The largest number of tokens of a sentence with its markers.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 16), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// The size of the hidden layer between the states of two mentions and the logits.
    #[serde(default = "hidden_size")]
    #[schemars(range(min = 1))]
    pub hidden_size: usize,
    /// The dropout rate of the encoder and of the hidden layer.
    #[serde(default = "dropout")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// The number format of the saved weights: `f32` or `f16`.
    #[serde(default)]
    pub dtype: WeightDtype,
    /// `[relations.training.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

/// `[relations.training.encoder]`: a small BERT and its vocabulary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FreshEncoder {
    /// The size of the vocabulary, which is trained on the annotated documents.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub vocabulary: usize,
    /// The size of the hidden states.
    #[schemars(range(min = 1))]
    pub hidden_size: usize,
    /// The number of layers.
    #[schemars(range(min = 1), extend("x-unit" = "layers"))]
    pub layers: usize,
    /// The number of attention heads.
    #[schemars(range(min = 1))]
    pub heads: usize,
}

fn max_tokens() -> usize {
    256
}

fn hidden_size() -> usize {
    256
}

fn dropout() -> f64 {
    0.1
}

impl MarkedTraining {
    /// Reports wrong values and, before a training, a missing encoder. `key` is the path of the table.
    pub fn check(&self, key: &str, is_training: bool, document: &mut Document<'_>) {
        let key = |name: &str| format!("{key}.{name}");
        match (&self.from, &self.encoder) {
            (Some(from), None) if is_training => check_start(MARKED, &key("from"), from, document),
            (Some(_), Some(_)) => document.report_key(&key("encoder"), "expected either this or `from`"),
            (None, None) => document.report_key(&key("from"), "expected either this or `encoder`"),
            (None, Some(encoder)) if encoder.heads == 0 || encoder.hidden_size % encoder.heads != 0 => {
                let message =
                    format!("expected a divisor of {}, found {}", encoder.hidden_size, encoder.heads);
                document.report_key(&key("encoder.heads"), message);
            }
            _ => {}
        }
        if let Err(error) = self.optimizer.check() {
            document.report_key(&key("optimizer"), error.to_string());
        }
    }
}
