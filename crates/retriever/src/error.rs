//! The errors of this crate.

use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of retrieval, indexes and encoders.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to open, read, write or rename a file.
    #[error("{path}: {action} failed")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The failed action.
        action: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// An endpoint.
    #[error(transparent)]
    Remote(#[from] sporran_remote::Error),
    /// A folder without an index.
    #[error(
        "{path}: expected an index's header that starts with {expected:?}, found {found:?}; delete the folder if it was an index, and the next run builds it again"
    )]
    NotAnIndex {
        /// The header file.
        path: PathBuf,
        /// The expected start of a header.
        expected: &'static str,
        /// The start of this file.
        found: String,
    },
    /// An index of another version of the format.
    #[error("{path}: expected format version {expected}, found {found}; build the index again")]
    Version {
        /// The header file.
        path: PathBuf,
        /// The version that this program reads.
        expected: u32,
        /// The version in the file.
        found: u32,
    },
    /// An index of another kind, such as tf-idf instead of BM25.
    #[error("{path}: expected an index of kind {expected:?}, found {found:?}")]
    Kind {
        /// The header file.
        path: PathBuf,
        /// The expected kind.
        expected: &'static str,
        /// The kind in the file.
        found: String,
    },
    /// An index over another set of passages.
    #[error(
        "{path}: the index was built over passages {found}, but these are {expected}; build the index again"
    )]
    OtherPassages {
        /// The header file.
        path: PathBuf,
        /// Hash of the given passages.
        expected: String,
        /// Hash of the passages that were indexed.
        found: String,
    },
    /// A header whose checksum or content is wrong.
    #[error(
        "{path}: the header is damaged: {message}; delete the folder that it is in, and the next run builds it again"
    )]
    Header {
        /// The header file.
        path: PathBuf,
        /// The problem.
        message: String,
    },
    /// A file of an index that is shorter or longer than its header says.
    #[error(
        "{path}: expected {expected} bytes, found {found}: the file is cut off or not this index's; delete the folder that it is in, and the next run builds it again"
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length by the header.
        expected: u64,
        /// Its length on disk.
        found: u64,
    },
    /// A damaged file of an index.
    #[error(
        "{path}: the file is damaged: {message}; delete the folder that it is in, and the next run builds it again"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The problem.
        message: String,
    },
    /// An option outside its range.
    #[error("{option}: expected {expected}, found {found}")]
    Option {
        /// The option's name in a config.
        option: &'static str,
        /// The expected value.
        expected: &'static str,
        /// The actual value.
        found: String,
    },
    /// A filter that cannot be read, or that does not match the metadata of the passages.
    #[error("filter: {message}")]
    Filter {
        /// The problem.
        message: String,
    },
    /// Passages whose ids are not 0, 1, 2, .. in order.
    #[error("expected passage {expected} next, found passage {found}")]
    PassageOrder {
        /// The expected id.
        expected: u32,
        /// The actual id.
        found: u32,
    },
    /// The source of the passages failed.
    #[error("reading passage {passage} failed")]
    Passages {
        /// The passage that could not be read.
        passage: u32,
        /// The source's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An error of the caller's, from [`Site`](crate::Site).
    #[error(transparent)]
    Site(Box<dyn std::error::Error + Send + Sync>),
    /// A knowledge source.
    #[error(transparent)]
    Kilt(#[from] sporran_kilt::Error),
    /// A model, its folder or its tokenizer.
    #[error(transparent)]
    Transformers(#[from] sporran_checkpoint::Error),
    /// A model whose folder does not say how the states of a text become its vector.
    #[error(
        "{folder}: expected modules.json (sentence-transformers), DPR, or a pooling by option, found none; choose cls, max, mean, mean_sqrt_len, weightedmean or lasttoken"
    )]
    Pooling {
        /// The model's folder.
        folder: PathBuf,
    },
    /// Values that are not a whole number of vectors.
    #[error("expected vectors of {dim} values, found {values} values")]
    Embeddings {
        /// The length of a vector.
        dim: usize,
        /// The number of values.
        values: usize,
    },
    /// An index over the vectors of another encoder.
    #[error(
        "{path}: the index was built with encoder {found}, but this one is {expected} (model, pooling, templates, similarity); build the index again"
    )]
    OtherEncoder {
        /// The header file.
        path: PathBuf,
        /// Hash of the given encoder.
        expected: String,
        /// Hash of the index's encoder.
        found: String,
    },
    /// A dense index with other options.
    #[error("{path}: expected an index built with {expected}, found {found}; build the index again")]
    OtherOptions {
        /// The header file.
        path: PathBuf,
        /// The given options.
        expected: String,
        /// The index's options.
        found: String,
    },
    /// A vector that cannot be stored or searched for.
    #[error("vector {vector}: expected {expected}, found {found}")]
    Vector {
        /// Its number: the passage's, or the query's in its batch.
        vector: usize,
        /// The expected value.
        expected: String,
        /// The actual value.
        found: String,
    },
    /// A graph in which searches for its own vectors often miss them.
    #[error(
        "index.library: `hnsw-rs` built a graph in which {lost} of {vectors} vectors are not found by themselves; use the library `own`, more `links` or a greater `construction-width`"
    )]
    BrokenGraph {
        /// The number of vectors that are not found.
        lost: u32,
        /// The number of all vectors.
        vectors: u32,
    },
    /// A part of an index that does not fit the others.
    #[error("{path}: expected {expected}, found {found}; make the shards again")]
    Part {
        /// The folder of the part.
        path: PathBuf,
        /// The expected content.
        expected: String,
        /// The actual content.
        found: String,
    },
    /// A number beyond the format's limit.
    #[error("the index would hold more than {most} {what}")]
    TooLarge {
        /// The counted thing.
        what: &'static str,
        /// The limit.
        most: u64,
    },
}

impl Error {
    /// Names the file and the action of an I/O error.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }
}
