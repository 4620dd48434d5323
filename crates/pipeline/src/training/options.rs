//! The shape of a model that training starts from random weights.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[train.shape]`: a T5 1.0 (ReLU, tied embeddings).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ShapeOptions {
    /// Width of the hidden states.
    #[schemars(range(min = 1))]
    pub d_model: usize,
    /// Width of the feed-forward layers.
    #[schemars(range(min = 1))]
    pub d_ff: usize,
    /// Width of a head.
    #[schemars(range(min = 1))]
    pub d_kv: usize,
    /// Heads.
    #[schemars(range(min = 1))]
    pub heads: usize,
    /// Encoder layers.
    #[schemars(range(min = 1))]
    pub encoder_layers: usize,
    /// Decoder layers.
    #[schemars(range(min = 1))]
    pub decoder_layers: usize,
    /// Share of units that dropout zeroes while training.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// Tokens of the vocabulary, which is learned from the passages and the examples.
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
