//! The folder of a reranker: `reranker.json` with its kind and settings, and the files of its model.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sporran_kilt::jsonl;
use sporran_transformers::{DeviceName, ModelType, Precision, Truncation, has_model_type};

use crate::{Error, QueryView, Result};

/// The file with the kind and the settings of a reranker.
pub const RERANKER: &str = "reranker.json";
/// The file with the word counts of a tf-idf reranker.
pub const COUNTS: &str = "tfidf.json";

/// The content of `reranker.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Saved {
    /// Word counts in `tfidf.json`.
    #[serde(rename = "tfidf", rename_all = "kebab-case")]
    TfIdf {
        /// Whether the query is compared with the titles of passages only.
        #[serde(default)]
        titles_only: bool,
    },
    /// The cosine of an encoder's vectors.
    #[serde(rename_all = "kebab-case")]
    Cosine {
        /// The largest number of tokens of a text.
        max_tokens: Option<usize>,
    },
    /// A cross-encoder.
    #[serde(rename_all = "kebab-case")]
    CrossEncoder {
        /// The largest number of tokens of a pair.
        max_tokens: Option<usize>,
        /// The truncation of longer pairs.
        truncation: Truncation,
    },
    /// A language model that answers yes or no.
    #[serde(rename_all = "kebab-case")]
    Llm {
        /// What makes a passage relevant.
        #[serde(default)]
        instruction: Option<String>,
        /// The largest number of tokens of a prompt.
        #[serde(default)]
        max_tokens: Option<usize>,
    },
    /// Whether the query contains a passage's title.
    #[serde(rename = "named")]
    TitleMatch,
    /// The position of a passage among the passages of its page.
    #[serde(rename = "place")]
    PositionPrior,
    /// A weighted sum of rerankers.
    Combined {
        /// The terms of the sum.
        parts: Vec<SavedPart>,
    },
}

/// One term of a weighted sum of rerankers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedPart {
    /// The reranker's folder, relative to that of the sum. Parts with the same folder share one loaded reranker.
    pub folder: PathBuf,
    /// The query text and the pooling.
    #[serde(default)]
    pub view: QueryView,
    /// The weight of the scores.
    pub weight: f32,
    /// Whether the scores are first standardised to mean 0 and standard deviation 1 over the query's passages.
    pub standardised: bool,
}

/// The settings for the models of a folder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computing {
    /// The data type of the weights.
    pub precision: Precision,
    /// The device.
    pub device: DeviceName,
    /// The largest number of tokens in a batch, padding included.
    pub batch_tokens: usize,
}

impl Saved {
    /// Reads `reranker.json` in `folder`. A folder without this file is a model in the Hugging Face layout: a language model, or
    /// else a cross-encoder.
    ///
    /// # Errors
    /// Errors of reading the file, with line and field.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(RERANKER);
        if path.is_file() {
            return Ok(jsonl::read_json(path)?);
        }
        if has_model_type(folder, ModelType::DecoderOnly) {
            return Ok(Self::Llm { instruction: None, max_tokens: None });
        }
        Ok(Self::CrossEncoder { max_tokens: None, truncation: Truncation::LongestFirst })
    }

    /// The name of the kind in `reranker.json` and in a config.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TfIdf { .. } => "tfidf",
            Self::Cosine { .. } => "cosine",
            Self::CrossEncoder { .. } => "cross-encoder",
            Self::Llm { .. } => "llm",
            Self::TitleMatch => "named",
            Self::PositionPrior => "place",
            Self::Combined { .. } => "combined",
        }
    }

    /// Writes `reranker.json` into `folder`.
    ///
    /// # Errors
    /// Errors of writing the file.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(RERANKER);
        let mut json =
            serde_json::to_vec_pretty(self).map_err(|source| Error::Json { path: path.clone(), source })?;
        json.push(b'\n');
        Ok(jsonl::write(path, &json)?)
    }
}
