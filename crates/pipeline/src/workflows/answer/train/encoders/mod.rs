//! Training of bi-encoders and cross-encoders: `[encoder-training]`.
//!
//! Both kinds train on queries with positive passages and hard negatives. A bi-encoder also has in-batch
//! negatives. A cross-encoder ranks the passages of one query.

mod contrasts;
mod train;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_retriever::dense::Similarity;
use sporran_training::{RankingLoss, TrainingOptions};
use sporran_transformers::{DeviceName, Pooling, Truncation};

use crate::tasks::options::TasksOptions;

pub(crate) use train::train_encoder;

/// The kind of encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EncoderKind {
    /// One encoder for queries and passages, whose vectors are compared.
    BiEncoder,
    /// A reranker that reads query and passage together.
    CrossEncoder,
}

/// `[encoder-training]`: the training of an encoder by `sporran train`. The config's `[retriever]` mines hard negatives. The
/// validation score is the mean reciprocal rank of the first positive passage among the retrieved passages of `[tasks]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EncoderTraining {
    /// `bi-encoder` or `cross-encoder`.
    pub kind: EncoderKind,
    /// The folder of the initial encoder: BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, MPNet, ELECTRA,
    /// ALBERT or DeBERTa.
    pub from: PathBuf,
    /// The folder of the trained model. A cross-encoder has the Hugging Face layout, a bi-encoder that of
    /// sentence-transformers.
    pub model: PathBuf,
    /// Training files in DPR's layout.
    #[serde(default)]
    pub data: Vec<PathBuf>,
    /// Training files of WOW++. At each turn the article of the dialogue's topic is positive, other articles are negative.
    #[serde(default)]
    pub dialogues: Vec<PathBuf>,
    /// Task files for training. The retriever mines their hard negatives.
    pub examples: Option<TasksOptions>,
    /// The number of passages to retrieve for a record. Passages that are not of gold pages are hard negatives.
    #[serde(default = "depth")]
    #[schemars(range(min = 1), extend("x-unit" = "passages"))]
    pub depth: usize,
    /// The number of hard negatives of a query, sampled in each epoch.
    #[serde(default = "negatives")]
    pub negatives: usize,
    /// The largest number of tokens of a text, or of a query with its passage. The default is that of the folder `from`.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
    /// The truncation of a query and a passage that are too long.
    #[serde(default)]
    pub truncation: Truncation,
    /// Bi-encoder: the pooling of hidden states, `mean` or `cls`. The default is the pooling of the folder
    /// `from` if it has exactly one, else `mean`.
    pub pooling: Option<Pooling>,
    /// Bi-encoder: the similarity of vectors, `cosine` or `inner-product`. The default is that of the folder `from`, else
    /// `cosine`.
    pub similarity: Option<Similarity>,
    /// Bi-encoder: the factor of similarities before the softmax. The default is 20 for the cosine and 1 for the inner
    /// product.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub scale: Option<f64>,
    /// Cross-encoder: the loss, `listwise`, `pairwise` or `binary`.
    #[serde(default)]
    pub loss: RankingLoss,
    /// The number of validation records of each task file, the first ones.
    #[serde(default = "validation_records")]
    #[schemars(extend("x-unit" = "records"))]
    pub validation_records: usize,
    /// `[encoder-training.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
    /// The device of the training: `cpu`, `cuda` or `cuda:N`.
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
