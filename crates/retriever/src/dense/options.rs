//! Options of dense retrieval.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_transformers::{DeviceName, Pooling, Precision, Truncation};

use crate::{Error, Result};

/// Dense retrieval: an encoder for queries, one for passages, and an index over the passages' vectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DenseOptions {
    /// The encoder's folder: in the layout of sentence-transformers, of DPR, or a bare encoder with
    /// `pooling`. It encodes queries, and passages too unless `passage-model` is given.
    pub model: PathBuf,
    /// The folder of the passage encoder, if it is another one, as in DPR.
    #[serde(default)]
    pub passage_model: Option<PathBuf>,
    /// The pooling of hidden states, overriding the folders': `cls`, `max`, `mean`, `mean_sqrt_len`,
    /// `weightedmean` or `lasttoken`.
    #[serde(default)]
    pub pooling: Option<Pooling>,
    /// The number of leading values to keep of a vector. The default is the folder's: the `truncate_dim` of
    /// sentence-transformers, or all.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub dimensions: Option<usize>,
    /// The encoded text of a query, with `{text}`: `query: {text}`. By default the folder's prompt for
    /// queries precedes the text: `query` among the `prompts` of sentence-transformers, or else its default
    /// prompt. A literal brace is `{{` or `}}`.
    #[serde(default)]
    pub query_template: Option<String>,
    /// The encoded text of a passage, with `{title}` and `{text}`: `passage: {title} {text}`. By default the
    /// folder's prompt for passages (`document`, `passage` or `corpus`, or else its default prompt) precedes
    /// title and text. These are joined as in the encoder's training: as a pair for DPR, otherwise with a
    /// blank.
    #[serde(default)]
    pub passage_template: Option<String>,
    /// The similarity of vectors: `inner-product`, `cosine`, `euclidean` or `manhattan`. The default is the
    /// folder's: the `similarity_fn_name` of sentence-transformers, or else the cosine. For other folders it is
    /// the inner product. The last two are distances, scored by their negative; they need a `flat` index in
    /// `f32`.
    #[serde(default)]
    pub similarity: Option<Similarity>,
    /// The largest number of input tokens; the rest is truncated. The default is the folder's.
    #[serde(default)]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
    /// The largest number of query tokens, if different. A query with a marked mention keeps the text around
    /// it.
    #[serde(default)]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub query_max_tokens: Option<usize>,
    /// The truncation of a query that is too long. A dialogue may keep its end, with `first-at-its-start`.
    #[serde(default = "around_mention", skip_serializing_if = "is_around_mention")]
    pub query_truncation: Truncation,
    /// The precision of the encoders: `f32` or `int8` on a CPU; `f32`, `f16` or `bf16` on a GPU.
    #[serde(default)]
    pub precision: Precision,
    /// The device of the encoders: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The largest number of tokens in a batch; a longer input is a batch.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
    /// The index over the passages' vectors.
    #[serde(default)]
    pub index: IndexOptions,
}

fn batch_tokens() -> usize {
    4096
}

fn around_mention() -> Truncation {
    Truncation::AroundMention
}

/// The default is left out of the keys of indexes and runs.
fn is_around_mention(truncation: &Truncation) -> bool {
    *truncation == around_mention()
}

impl DenseOptions {
    /// The folder's settings, with exact search.
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
            query_truncation: around_mention(),
            precision: Precision::default(),
            device: DeviceName::default(),
            batch_tokens: batch_tokens(),
            index: IndexOptions::default(),
        }
    }
}

/// The similarity of vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Similarity {
    /// The inner product.
    #[default]
    InnerProduct,
    /// The inner product of normalised vectors. A zero vector is equally similar to all.
    Cosine,
    /// The negative Euclidean distance.
    Euclidean,
    /// The negative Manhattan distance: the sum of the absolute differences.
    Manhattan,
}

impl Similarity {
    /// Its name in a config.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::InnerProduct => "inner-product",
            Self::Cosine => "cosine",
            Self::Euclidean => "euclidean",
            Self::Manhattan => "manhattan",
        }
    }

    /// Whether it is a distance, of which less is nearer, rather than a product.
    #[must_use]
    pub fn is_distance(self) -> bool {
        matches!(self, Self::Euclidean | Self::Manhattan)
    }
}

/// An index over vectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum IndexOptions {
    /// Compares every vector with the query.
    Flat(FlatOptions),
    /// Compares vectors by quantised codes.
    Pq(PqOptions),
    /// Follows a graph of near vectors.
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

    /// The same without search options: the options that an index on disk was built with.
    pub(crate) fn built(&self) -> Self {
        match self {
            // Vectors for rescoring exist or not; the search decides how many are rescored.
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

    /// In the form of a config, for messages.
    pub(crate) fn describe(&self) -> String {
        // Plain data is always valid JSON.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Options of exact search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlatOptions {
    /// The storage type of vectors.
    pub storage: Storage,
    /// With `int8`: the number of 8-bit results to rescore, as a multiple of k. Vectors in `rescore-storage`
    /// are stored for that. 0: no rescoring and no such vectors.
    pub rescore: usize,
    /// With `int8` and `rescore`: the storage type of these vectors, `f16` or `f32`.
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

/// The storage type of vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// In 32 bits.
    #[default]
    F32,
    /// In 16 bits, with a precision of 11 bits; values beyond 65,504 are an error.
    F16,
    /// In 8 bits, with one scale a vector; queries are quantised too.
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

/// The storage type of vectors that are read by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VectorStorage {
    /// In 16 bits, with a precision of 11 bits; values beyond 65,504 are an error.
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

/// Product quantisation: vectors are split into parts, and each part is stored as the code of its nearest
/// centroid. All codes are compared with the query. The search is approximate; its recall compared with an
/// exact search is measured when the index is built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PqOptions {
    /// The number of parts of equal size: 1 to 256, even with 4 bits. The default uses one byte for 8 values:
    /// an eighth of the vector length, a quarter with 4 bits.
    #[schemars(range(min = 1, max = 256))]
    pub parts: Option<usize>,
    /// Bits of a code: 4 or 8.
    pub bits: PqBits,
    /// The largest number of vectors for the training of centroids.
    #[schemars(range(min = 1))]
    pub sample: usize,
    /// Rounds of k-means.
    pub iterations: usize,
    /// The seed for the training sample, the initial centroids and the recall sample.
    pub seed: u64,
    /// The number of results by codes to rescore, as a multiple of k. Vectors in `rescore-storage` are stored
    /// for that. 0: no rescoring and no such vectors.
    pub rescore: usize,
    /// With `rescore`: the storage type of these vectors, `f16` or `f32`.
    pub rescore_storage: VectorStorage,
}

impl Default for PqOptions {
    /// One byte for 8 values, without rescoring.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u8", into = "u8")]
pub enum PqBits {
    /// 16 centroids a part.
    Four,
    /// 256 centroids a part.
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

/// The implementation of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HnswLibrary {
    /// Sporran's: mapped from disk, and built on all threads with the same result.
    #[default]
    Own,
    /// The crate `hnsw_rs`. Its graph and a copy of the vectors in 32 bits are loaded into memory.
    HnswRs,
}

/// Graph search (HNSW): near vectors are linked, and a search follows the links. The search is approximate;
/// its recall compared with an exact search is measured when the index is built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct HnswOptions {
    /// The implementation: `own` or `hnsw-rs`. With `hnsw-rs`, a graph in which a search for a vector often
    /// misses that vector is refused.
    #[serde(skip_serializing_if = "is_default")]
    pub library: HnswLibrary,
    /// With `hnsw-rs`: whether vectors are inserted on all threads. That is faster, but each build gives
    /// another graph.
    #[serde(skip_serializing_if = "is_default")]
    pub parallel_build: bool,
    /// The storage type of vectors. With `hnsw-rs`, scores are computed from them.
    pub storage: VectorStorage,
    /// The largest number of links in the upper layers; the bottom layer has twice as many. More links
    /// increase recall, memory (8 bytes each) and time. From 2 to 256; with `hnsw-rs` to 255.
    #[schemars(range(min = 2, max = 256))]
    pub links: usize,
    /// The number of candidates for links. More candidates give better links and a slower build. At least
    /// `links`.
    #[schemars(range(min = 1))]
    pub construction_width: usize,
    /// The search width: the number of nearest nodes that a search keeps, at least k. A larger width
    /// increases recall and time; the index does not change.
    #[schemars(range(min = 1))]
    pub search_width: usize,
    /// The seed for layers, insertion order and the recall sample. The layers of `hnsw-rs` have a fixed seed.
    pub seed: u64,
}

/// The defaults of later options are left out of the keys of indexes and runs.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for HnswOptions {
    /// Up to 32 links at the bottom.
    fn default() -> Self {
        Self {
            library: HnswLibrary::Own,
            parallel_build: false,
            storage: VectorStorage::F32,
            links: 16,
            construction_width: 200,
            search_width: 64,
            seed: 17,
        }
    }
}

impl HnswOptions {
    fn check(&self) -> Result<()> {
        let own = self.library == HnswLibrary::Own;
        // The crate stores the number in 8 bits, and ends the process for more than 256.
        let (most, expected) =
            if own { (256, "2 to 256") } else { (255, "2 to 255, with the library `hnsw-rs`") };
        if !(2..=most).contains(&self.links) {
            return Err(Error::Option { option: "index.links", expected, found: self.links.to_string() });
        }
        if own && self.parallel_build {
            return Err(Error::Option {
                option: "index.parallel-build",
                expected: "false, unless the library is `hnsw-rs`",
                found: "true".into(),
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
        // Keys of older indexes and runs lack this option.
        assert!(!serde_json::to_string(&least).unwrap().contains("query-truncation"));
        let last = read(r#"{"model": "m", "query-truncation": "mention-or-end"}"#).unwrap();
        assert_eq!(last.query_truncation, Truncation::MentionOrEnd);
        assert_eq!(read(&serde_json::to_string(&last).unwrap()).unwrap(), last);
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
            (
                r#"{"model": "m", "index": {"kind": "hnsw", "library": "faiss"}}"#,
                "unknown variant `faiss`, expected `own` or `hnsw-rs`",
            ),
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
            (r#"{"kind": "hnsw", "parallel-build": true}"#, "index.parallel-build"),
            (
                r#"{"kind": "hnsw", "library": "hnsw-rs", "links": 256, "construction-width": 256}"#,
                "index.links",
            ),
        ] {
            let options: IndexOptions = serde_json::from_str(json).unwrap();
            assert!(matches!(options.check(), Err(Error::Option { option, .. }) if option == at_fault));
        }
        let own = IndexOptions::Hnsw(HnswOptions::default()).describe();
        assert!(!own.contains("library") && !own.contains("parallel-build"), "{own}");
        let theirs: IndexOptions =
            serde_json::from_str(r#"{"kind": "hnsw", "library": "hnsw-rs", "parallel-build": true}"#)
                .unwrap();
        theirs.check().unwrap();
        assert!(theirs.describe().contains(r#""library":"hnsw-rs","parallel-build":true"#));
    }
}
