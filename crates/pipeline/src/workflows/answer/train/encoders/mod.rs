//! Training of encoders that retrieve or rerank: `[encoder-training]`.
//!
//! Both kinds learn from the same contrasts: a query, passages that answer it, and hard negatives that do not. A bi-encoder
//! learns with the passages of the other queries of its batch as well; a cross-encoder ranks the passages of one query.

mod contrasts;
mod layout;
mod train;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_retriever::dense::Similarity;
use sporran_training::{RankingLoss, TrainingOptions};
use sporran_transformers::{DeviceName, Pooling, Truncation};

use crate::tasks::options::TasksOptions;

pub(crate) use layout::{Prompts, SentenceLayout};
pub use train::train_encoder;

/// What is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EncoderKind {
    /// One encoder for queries and passages, whose vectors are compared.
    BiEncoder,
    /// A reranker that reads query and passage together.
    CrossEncoder,
}

/// `[encoder-training]`: how `sporran train` makes an encoder. The config's `[retriever]` mines hard negatives, and its
/// `[tasks]` are what the encoder is judged on: the mean reciprocal rank of the first passage that answers, among the
/// passages that were found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EncoderTraining {
    /// `bi-encoder` or `cross-encoder`.
    pub kind: EncoderKind,
    /// The folder of the encoder to start from: BERT, RoBERTa, XLM-RoBERTa or DistilBERT.
    pub from: PathBuf,
    /// Where the trained model goes, in the Hugging Face layout; a bi-encoder's in that of sentence-transformers.
    pub model: PathBuf,
    /// Files of DPR's training data to learn from.
    #[serde(default)]
    pub data: Vec<PathBuf>,
    /// Files of WOW++ to learn from: at each turn the article of a dialogue's topic is to be told from the others.
    #[serde(default)]
    pub dialogues: Vec<PathBuf>,
    /// Task files to learn from; the retriever mines their hard negatives.
    pub examples: Option<TasksOptions>,
    /// Passages of a record that the retriever finds; those of no gold page are hard negatives.
    #[serde(default = "depth")]
    #[schemars(range(min = 1), extend("x-unit" = "passages"))]
    pub depth: usize,
    /// Hard negatives of a query that a batch shows, drawn anew for each pass.
    #[serde(default = "negatives")]
    pub negatives: usize,
    /// Tokens of a text, or of a query with a passage, at most; by default as many as the folder of `from` says.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
    /// What is cut of a query with a passage that is too long.
    #[serde(default)]
    pub truncation: Truncation,
    /// Bi-encoder: how states become a vector, `mean` or `cls`. By default as the folder of `from` says where it has
    /// one pooling, or else `mean`.
    pub pooling: Option<Pooling>,
    /// Bi-encoder: how near two vectors are, `cosine` or `inner-product`. By default as the folder of `from` says, or else
    /// `cosine`.
    pub similarity: Option<Similarity>,
    /// Bi-encoder: what similarities are multiplied with before the softmax; by default 20 for cosines and 1 for inner
    /// products.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub scale: Option<f64>,
    /// Cross-encoder: `listwise`, `pairwise` or `binary`.
    #[serde(default)]
    pub loss: RankingLoss,
    /// Records of each task file that a judgement looks at.
    #[serde(default = "validation_records")]
    #[schemars(extend("x-unit" = "records"))]
    pub validation_records: usize,
    /// `[encoder-training.optimizer]`: passes, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
    /// Where it trains: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
}

fn depth() -> usize {
    30
}

fn negatives() -> usize {
    4
}

fn validation_records() -> usize {
    200
}
