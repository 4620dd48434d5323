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
    /// How states become a vector, in the place of what the folders say: `cls`, `max`, `mean`, `mean_sqrt_len`,
    /// `weightedmean` or `lasttoken`.
    #[serde(default)]
    pub pooling: Option<Pooling>,
    /// How many values of a vector are kept, from the first on. By default as many as the folder says: the `truncate_dim`
    /// of sentence-transformers, or all.
    #[serde(default)]
    pub dimensions: Option<usize>,
    /// What is encoded of a query, with `{text}`: `query: {text}`. By default the folder's prompt for queries stands
    /// before the text: `query` among the `prompts` of sentence-transformers, or else its default prompt. A brace itself
    /// is written `{{` or `}}`.
    #[serde(default)]
    pub query_template: Option<String>,
    /// What is encoded of a passage, with `{title}` and `{text}`: `passage: {title} {text}`. By default the folder's
    /// prompt for passages (`document`, `passage` or `corpus`, or else its default prompt) stands before title and text,
    /// which are joined as the encoder was trained: DPR's as a pair, otherwise with a blank between them.
    #[serde(default)]
    pub passage_template: Option<String>,
    /// How near two vectors are: `inner-product` or `cosine`. By default as the folder says: the `similarity_fn_name` of
    /// sentence-transformers, which is the cosine where it is not set; for other folders the inner product.
    #[serde(default)]
    pub similarity: Option<Similarity>,
    /// Tokens of an input, at most; the rest is cut. By default as many as the folder says.
    #[serde(default)]
    pub max_tokens: Option<usize>,
    /// Tokens of a query, at most, where that is another number. A query with a marked mention keeps what is next to it.
    #[serde(default)]
    pub query_max_tokens: Option<usize>,
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
            dimensions: None,
            query_template: None,
            passage_template: None,
            similarity: None,
            max_tokens: None,
            query_max_tokens: None,
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
    /// Vectors are compared by codes of their parts.
    Pq(PqOptions),
    /// A graph of near vectors is followed towards the query.
    Hnsw(HnswOptions),
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
            Self::Pq(options) => options.check(),
            Self::Hnsw(options) => options.check(),
        }
    }

    /// The same without what only a search depends on: what an index on disk was built with.
    pub(crate) fn built(&self) -> Self {
        match self {
            // Vectors to rescore with are there or not; how many are looked at is for the search to say.
            Self::Flat(options) => {
                Self::Flat(FlatOptions { rescore: options.rescore.min(1), ..options.clone() })
            }
            Self::Pq(options) => Self::Pq(PqOptions { rescore: options.rescore.min(1), ..options.clone() }),
            Self::Hnsw(options) => Self::Hnsw(HnswOptions {
                search_width: HnswOptions::default().search_width,
                ..options.clone()
            }),
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
    pub rescore_storage: VectorStorage,
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

/// How vectors are kept that are read one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VectorStorage {
    /// In 16 bits, with 11 of precision; values beyond 65,504 are an error.
    #[default]
    F16,
    /// In 32 bits.
    F32,
}

impl VectorStorage {
    /// Bytes of a value.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// Product quantisation: a vector is cut into parts, and of each part a code is kept that stands for one of a few learnt
/// vectors. All codes are compared with the query. It does not find everything; how much it finds of what an exact search
/// finds is measured when the index is built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PqOptions {
    /// Parts of a vector, which must be of one width: 1 to 256, an even number with 4 bits. By default a byte for 8
    /// values: an eighth of the width, with 4 bits a quarter.
    pub parts: Option<usize>,
    /// Bits of a code: 4 or 8.
    pub bits: PqBits,
    /// Vectors that are learnt from, at most.
    pub sample: usize,
    /// Rounds of k-means.
    pub iterations: usize,
    /// Draws those that are learnt from, those that k-means begins with, and those that recall is measured with.
    pub seed: u64,
    /// For each passage that is asked for, so many of the best by codes are scored anew with vectors that are kept beside,
    /// in `rescore-storage`. 0: none, and no such vectors.
    pub rescore: usize,
    /// With `rescore`: how the vectors beside are kept, `f16` or `f32`.
    pub rescore_storage: VectorStorage,
}

impl Default for PqOptions {
    /// A byte for 8 values, without vectors beside.
    fn default() -> Self {
        Self {
            parts: None,
            bits: PqBits::Eight,
            sample: 32_768,
            iterations: 15,
            seed: 17,
            rescore: 0,
            rescore_storage: VectorStorage::F16,
        }
    }
}

impl PqOptions {
    fn check(&self) -> Result<()> {
        if self.sample == 0 {
            return Err(Error::Option { option: "index.sample", expected: "at least 1", found: "0".into() });
        }
        Ok(())
    }
}

/// Bits of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum PqBits {
    /// 16 learnt vectors a part.
    Four,
    /// 256 learnt vectors a part.
    Eight,
}

impl TryFrom<u8> for PqBits {
    type Error = String;

    fn try_from(bits: u8) -> Result<Self, String> {
        match bits {
            4 => Ok(Self::Four),
            8 => Ok(Self::Eight),
            other => Err(format!("expected 4 or 8 bits, found {other}")),
        }
    }
}

impl From<PqBits> for u8 {
    fn from(bits: PqBits) -> Self {
        match bits {
            PqBits::Four => 4,
            PqBits::Eight => 8,
        }
    }
}

/// Search along a graph (HNSW): vectors are linked to near ones, and a search follows the links. It does not find
/// everything; how much it finds of what an exact search finds is measured when the index is built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct HnswOptions {
    /// How vectors are kept.
    pub storage: VectorStorage,
    /// Links of a vector in the upper layers, at most, and half of those in the bottom layer. More find more, cost memory
    /// (8 bytes each) and time. From 2 to 256.
    pub links: usize,
    /// How many of the nearest are looked through for links. More give better links, and cost time when the index is
    /// built. At least `links`.
    pub construction_width: usize,
    /// How many of the nearest a search keeps on the way, at least as many as are asked for. More find more and cost
    /// time; the index stays as it is.
    pub search_width: usize,
    /// Draws layers, the order in which vectors come into the graph, and those that recall is measured with.
    pub seed: u64,
}

impl Default for HnswOptions {
    /// 32 links at the bottom.
    fn default() -> Self {
        Self { storage: VectorStorage::F32, links: 16, construction_width: 200, search_width: 64, seed: 17 }
    }
}

impl HnswOptions {
    fn check(&self) -> Result<()> {
        if !(2..=256).contains(&self.links) {
            return Err(Error::Option {
                option: "index.links",
                expected: "2 to 256",
                found: self.links.to_string(),
            });
        }
        if self.construction_width < self.links {
            return Err(Error::Option {
                option: "index.construction-width",
                expected: "at least `links`",
                found: self.construction_width.to_string(),
            });
        }
        if self.search_width == 0 {
            return Err(Error::Option {
                option: "index.search-width",
                expected: "at least 1",
                found: "0".into(),
            });
        }
        Ok(())
    }
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
            r#"{"model": "q", "passage-model": "p", "pooling": "mean", "dimensions": 8, "query-template": "query: {text}",
                "passage-template": "{title}: {text}", "similarity": "cosine", "max-tokens": 256,
                "precision": "int8", "device": "cpu", "batch-tokens": 512,
                "index": {"kind": "flat", "storage": "int8", "rescore": 4, "rescore-storage": "f32"}}"#,
        )
        .unwrap();
        assert_eq!((most.pooling, most.dimensions), (Some(Pooling::Mean), Some(8)));
        let IndexOptions::Flat(flat) = &most.index else { panic!("flat") };
        assert_eq!(
            (flat.storage, flat.rescore, flat.rescore_storage),
            (Storage::Int8, 4, VectorStorage::F32)
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
            (r#"{"model": "m", "pooling": "median"}"#, "`weightedmean` or `lasttoken`, found `median`"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let options = IndexOptions::Flat(FlatOptions { rescore: 2, ..FlatOptions::default() });
        assert!(matches!(options.check(), Err(Error::Option { option: "index.rescore", .. })));
        assert!(
            read(r#"{"model": "m", "index": {"kind": "pq", "bits": 5}}"#).unwrap_err().contains("4 or 8")
        );
        for (json, at_fault) in [
            (r#"{"kind": "pq", "sample": 0}"#, "index.sample"),
            (r#"{"kind": "hnsw", "links": 1}"#, "index.links"),
            (r#"{"kind": "hnsw", "construction-width": 15}"#, "index.construction-width"),
            (r#"{"kind": "hnsw", "search-width": 0}"#, "index.search-width"),
        ] {
            let options: IndexOptions = serde_json::from_str(json).unwrap();
            assert!(matches!(options.check(), Err(Error::Option { option, .. }) if option == at_fault));
        }
    }
}
