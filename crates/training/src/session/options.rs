//! Options that the trainings of several workflows share.

use candle_core::DType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The number format of saved weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WeightDtype {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits; files of half the size.
    F16,
}

impl From<WeightDtype> for DType {
    fn from(dtype: WeightDtype) -> Self {
        match dtype {
            WeightDtype::F32 => Self::F32,
            WeightDtype::F16 => Self::F16,
        }
    }
}

/// `[train.shape]`: a T5 1.0 (ReLU, tied embeddings).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ShapeOptions {
    /// The size of the hidden states.
    #[schemars(range(min = 1))]
    pub d_model: usize,
    /// The size of the feed-forward layers.
    #[schemars(range(min = 1))]
    pub d_ff: usize,
    /// The size of an attention head.
    #[schemars(range(min = 1))]
    pub d_kv: usize,
    /// The number of attention heads.
    #[schemars(range(min = 1))]
    pub heads: usize,
    /// The number of encoder layers.
    #[schemars(range(min = 1))]
    pub encoder_layers: usize,
    /// The number of decoder layers.
    #[schemars(range(min = 1))]
    pub decoder_layers: usize,
    /// The dropout rate in training.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// The size of the vocabulary, which is trained on the passages and the examples.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub vocabulary: usize,
}

impl Default for ShapeOptions {
    fn default() -> Self {
        Self {
            d_model: 128,
            d_ff: 384,
            d_kv: 32,
            heads: 4,
            encoder_layers: 3,
            decoder_layers: 2,
            dropout: 0.0,
            vocabulary: 8000,
        }
    }
}
