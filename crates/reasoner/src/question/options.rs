//! The options of EmbedKGQA and TransferNet. The documentation of these types is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_training::TrainingOptions;

/// The encoder of a question model and its training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EncoderShape {
    /// The folder of the initial encoder. Without it, training starts from an encoder of these sizes with
    /// random weights, and trains its vocabulary.
    pub from: Option<PathBuf>,
    /// The size of the hidden states.
    #[schemars(range(min = 1))]
    pub hidden_size: usize,
    /// The number of layers.
    #[schemars(range(min = 1), extend("x-unit" = "layers"))]
    pub layers: usize,
    /// The number of attention heads.
    #[schemars(range(min = 1))]
    pub heads: usize,
    /// The size of the feed-forward layers.
    #[schemars(range(min = 1))]
    pub feed_forward: usize,
    /// The largest size of the vocabulary.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub vocabulary: usize,
    /// The dropout rate.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// The largest number of tokens of question and document.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
}

impl Default for EncoderShape {
    fn default() -> Self {
        Self {
            from: None,
            hidden_size: 128,
            layers: 2,
            heads: 4,
            feed_forward: 256,
            vocabulary: 4000,
            dropout: 0.1,
            max_tokens: 192,
        }
    }
}

/// `kind = "embed-kgqa"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EmbedOptions {
    /// The folder of the model, which training writes.
    pub model: PathBuf,
    /// The number of complex dimensions of an entity's vector. The default is 64. Only without `embedding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub rank: Option<usize>,
    /// The folder of a ComplEx of the same knowledge base, for the vectors of entities. Without it, they are
    /// random at first, and trained with the questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding: Option<PathBuf>,
    /// Whether the vectors of `embedding` are fine-tuned with the questions.
    #[serde(default)]
    pub train_entities: bool,
    /// `[reasoner.encoder]`: the encoder of question and document.
    #[serde(default)]
    pub encoder: EncoderShape,
    /// `[reasoner.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

/// `kind = "transfer-net"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TransferOptions {
    /// The folder of the model, which training writes.
    pub model: PathBuf,
    /// The number of steps over the triples: 1 or 2.
    #[serde(default = "steps")]
    #[schemars(range(min = 1, max = 2), extend("x-unit" = "steps"))]
    pub steps: usize,
    /// `[reasoner.encoder]`: the encoder of question and document.
    #[serde(default)]
    pub encoder: EncoderShape,
    /// `[reasoner.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

fn steps() -> usize {
    2
}
