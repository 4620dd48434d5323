//! What can be asked of dense retrieval.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sporran_transformers::{DeviceName, Pooling, Precision};

use crate::{Error, Result};

/// Dense retrieval: an encoder for queries, one for passages, and an index over the passages' vectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DenseOptions {
    /// The encoder's folder: in the layout of sentence-transformers, of DPR, or a bare encoder with `pooling`. It reads
    /// the queries, and the passages where there is no `passage-model`.
    pub model: PathBuf,
    /// The folder of the passages' encoder, where it is another one, as DPR's context encoder is.
    #[serde(default)]
    pub passage_model: Option<PathBuf>,
    /// How states become a vector, in the place of what the folders say: `cls`, `max`, `mean` or `mean_sqrt_len`.
    #[serde(default)]
    pub pooling: Option<Pooling>,
    /// What is encoded of a query, with `{text}`, in the place of the folder's own prompt: `query: {text}`. A brace itself
    /// is written `{{` or `}}`.
    #[serde(default)]
    pub query_template: Option<String>,
    /// What is encoded of a passage, with `{title}` and `{text}`, in the place of the folder's own prompt: `passage:
    /// {title} {text}`. By default title and text are joined as the encoder was trained: DPR's as a pair, otherwise with a
    /// blank between them.
    #[serde(default)]
    pub passage_template: Option<String>,
    /// How near two vectors are.
    #[serde(default)]
    pub similarity: Similarity,
    /// Tokens of an input, at most; the rest is cut. By default as many as the folder says.
    #[serde(default)]
    pub max_tokens: Option<usize>,
    /// The numbers that the encoders compute with: `f32` or `int8` on a CPU; `f32`, `f16` or `bf16` on a GPU.
    #[serde(default)]
    pub precision: Precision,
    /// Where the encoders compute: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// Tokens of a batch, at most; a longer input is a batch of its own.
    #[serde(default = "batch_tokens")]
    pub batch_tokens: usize,
    /// The index over the passages' vectors.
    #[serde(default)]
    pub index: IndexOptions,
}

fn batch_tokens() -> usize {
    4096
}

impl DenseOptions {
    /// A folder's model as the folder says, searched exactly.
    pub fn new(model: PathBuf) -> Self {
        Self {
            model,
            passage_model: None,
            pooling: None,
            query_template: None,
            passage_template: None,
            similarity: Similarity::default(),
            max_tokens: None,
            precision: Precision::default(),
            device: DeviceName::default(),
            batch_tokens: batch_tokens(),
            index: IndexOptions::default(),
        }
    }
}

/// How near two vectors are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Similarity {
    /// Their inner product.
    #[default]
    InnerProduct,
    /// The inner product of both at a length of 1; a vector of zeros is as near to one as to another.
    Cosine,
}

impl Similarity {
    /// Its name in a config.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::InnerProduct => "inner-product",
            Self::Cosine => "cosine",
        }
    }
}

/// An index over vectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum IndexOptions {
    /// Every vector is compared with the query.
    Flat(FlatOptions),
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self::Flat(FlatOptions::default())
    }
}

impl IndexOptions {
    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Flat(options) => options.check(),
        }
    }

    /// The same without what only a search depends on: what an index on disk was built with.
    pub(crate) fn built(&self) -> Self {
        match self {
            // Rows to rescore with are there or not; how many are looked at is for the search to say.
            Self::Flat(options) => {
                Self::Flat(FlatOptions { rescore: options.rescore.min(1), ..options.clone() })
            }
        }
    }

    /// As a config has it, for messages.
    pub(crate) fn describe(&self) -> String {
        // Plain data, whose JSON cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// How vectors are compared that are all compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlatOptions {
    /// How vectors are kept.
    pub storage: Storage,
    /// With `int8`: for each passage that is asked for, so many of the best in 8 bits are scored anew with vectors that
    /// are kept beside, in `rescore-storage`. 0: none, and no such vectors.
    pub rescore: usize,
    /// With `int8` and `rescore`: how the vectors beside are kept, `f16` or `f32`.
    pub rescore_storage: RescoreStorage,
}

impl FlatOptions {
    fn check(&self) -> Result<()> {
        if self.rescore > 0 && self.storage != Storage::Int8 {
            return Err(Error::Option {
                option: "index.rescore",
                expected: "0, unless the storage is `int8`",
                found: self.rescore.to_string(),
            });
        }
        Ok(())
    }
}

/// How the values of vectors are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// In 32 bits.
    #[default]
    F32,
    /// In 16 bits, with 11 of precision; values beyond 65,504 are an error.
    F16,
    /// In 8 bits, with a scale for each vector; queries are rounded alike.
    Int8,
}

impl From<Storage> for sporran_kernels::Storage {
    fn from(storage: Storage) -> Self {
        match storage {
            Storage::F32 => Self::F32,
            Storage::F16 => Self::F16,
            Storage::Int8 => Self::Int8,
        }
    }
}

/// How vectors are kept that others are scored anew with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RescoreStorage {
    /// In 16 bits.
    #[default]
    F16,
    /// In 32 bits.
    F32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<DenseOptions, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_as_they_are_written() {
        let least = read(r#"{"model": "m"}"#).unwrap();
        assert_eq!(least, DenseOptions::new("m".into()));
        let most = read(
            r#"{"model": "q", "passage-model": "p", "pooling": "mean", "query-template": "query: {text}",
                "passage-template": "{title}: {text}", "similarity": "cosine", "max-tokens": 256,
                "precision": "int8", "device": "cpu", "batch-tokens": 512,
                "index": {"kind": "flat", "storage": "int8", "rescore": 4, "rescore-storage": "f32"}}"#,
        )
        .unwrap();
        assert_eq!(most.pooling, Some(Pooling::Mean));
        let IndexOptions::Flat(flat) = &most.index;
        assert_eq!(
            (flat.storage, flat.rescore, flat.rescore_storage),
            (Storage::Int8, 4, RescoreStorage::F32)
        );
        assert_eq!(read(&serde_json::to_string(&most).unwrap()).unwrap(), most);
    }

    #[test]
    fn what_is_not_an_option_is_an_error() {
        for (json, part) in [
            (r#"{"model": "m", "modle": 1}"#, "unknown field `modle`"),
            (r#"{"index": {"kind": "flat"}}"#, "missing field `model`"),
            (r#"{"model": "m", "index": {"kind": "flat", "rescores": 1}}"#, "unknown field `rescores`"),
            (r#"{"model": "m", "index": {"kind": "flatt"}}"#, "unknown variant `flatt`"),
            (r#"{"model": "m", "index": {"kind": "flat", "storage": "f64"}}"#, "unknown variant `f64`"),
            (r#"{"model": "m", "pooling": "median"}"#, "expected `cls`, `max`, `mean` or `mean_sqrt_len`"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let options = IndexOptions::Flat(FlatOptions { rescore: 2, ..FlatOptions::default() });
        assert!(matches!(options.check(), Err(Error::Option { option: "index.rescore", .. })));
    }
}
