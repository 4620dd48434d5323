//! The list of reranker kinds.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Document, kinds};
use sporran_transformers::{DeviceName, Precision};

use crate::{
    Computing, CosineOptions, CrossEncoderOptions, RERANKER, Reranker, Result,
    kind::{RerankerKind, check_computing, check_folder},
    open,
};

kinds! {
    /// `[reranker]`, by `kind`.
    pub enum RerankerOptions: dyn RerankerKind {
        /// `kind = "cross-encoder"`: a transformer reads the query and a passage together.
        "cross-encoder" => CrossEncoder(CrossEncoderOptions),
        /// `kind = "cosine"`: the cosine of the vectors of an encoder.
        "cosine" => Cosine(CosineOptions),
        /// `kind = "tfidf"`: the similarity of words, weighted by how rare they are.
        "tfidf" => TfIdf(TfIdfOptions),
        /// `kind = "combined"`: a weighted sum of several rerankers, as `sporran train` saves it.
        "combined" => Combined(CombinedOptions),
    }
}

/// `kind = "tfidf"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TfIdfOptions {
    /// The folder that `sporran train` made.
    #[serde(rename = "model")]
    pub folder: PathBuf,
}

/// `kind = "combined"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CombinedOptions {
    /// The folder that `sporran train` made.
    #[serde(rename = "model")]
    pub folder: PathBuf,
    /// The data type of the weights: `f32` or `int8` on a CPU; `f32`, `f16` or `bf16` on a GPU.
    #[serde(default)]
    pub precision: Precision,
    /// The device: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The largest number of tokens in a batch, padding included.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
}

fn batch_tokens() -> usize {
    4096
}

impl RerankerKind for TfIdfOptions {
    fn folder(&self) -> &Path {
        &self.folder
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_folder((key, "tfidf"), &self.folder, document, |model, document| {
            document.check_folder(model, &self.folder, RERANKER);
        });
    }

    fn open(&self) -> Result<Box<dyn Reranker>> {
        let (precision, device) = (Precision::default(), DeviceName::default());
        open(&self.folder, Computing { precision, device, batch_tokens: batch_tokens() })
    }
}

impl RerankerKind for CombinedOptions {
    fn folder(&self) -> &Path {
        &self.folder
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        let Self { precision, device, batch_tokens, .. } = *self;
        check_computing(key, Computing { precision, device, batch_tokens }, document);
        check_folder((key, "combined"), &self.folder, document, |model, document| {
            document.check_folder(model, &self.folder, RERANKER);
        });
    }

    fn open(&self) -> Result<Box<dyn Reranker>> {
        let Self { precision, device, batch_tokens, .. } = *self;
        open(&self.folder, Computing { precision, device, batch_tokens })
    }
}
