//! What can go wrong when an index is built, opened or searched, and when texts are encoded.

use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way in which retrieval and what it needs can fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to open, read, write or rename a file.
    #[error("{path}: {action} failed")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A folder that holds no index.
    #[error(
        "{path}: expected an index's header that starts with {expected:?}, found {found:?}; delete the folder if it was an index, and the next run builds it again"
    )]
    NotAnIndex {
        /// The header file.
        path: PathBuf,
        /// How a header starts.
        expected: &'static str,
        /// How this file starts.
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
    /// An index of another kind, such as tf-idf where BM25 is asked for.
    #[error("{path}: expected an index of kind {expected:?}, found {found:?}")]
    Kind {
        /// The header file.
        path: PathBuf,
        /// The kind asked for.
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
        /// Hash of the passages at hand.
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
        /// What is wrong with it.
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
    /// A file of an index whose content is not what was written.
    #[error(
        "{path}: the file is damaged: {message}; delete the folder that it is in, and the next run builds it again"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// An option outside its range.
    #[error("{option}: expected {expected}, found {found}")]
    Option {
        /// The option's name in a config.
        option: &'static str,
        /// What would be right.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// Passages that do not come in the order of their ids, from 0, without gaps.
    #[error("expected passage {expected} next, found passage {found}")]
    PassageOrder {
        /// The id that comes next.
        expected: u32,
        /// The id that came.
        found: u32,
    },
    /// The source of the passages failed.
    #[error("reading passage {passage} failed")]
    Passages {
        /// The passage that could not be read.
        passage: u32,
        /// What the source said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
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
        /// The width of a vector.
        dim: usize,
        /// How many values there are.
        values: usize,
    },
    /// An index over the vectors of another encoder.
    #[error(
        "{path}: the index was built with encoder {found}, but this one is {expected} (model, pooling, templates, similarity); build the index again"
    )]
    OtherEncoder {
        /// The header file.
        path: PathBuf,
        /// Hash of the encoder at hand.
        expected: String,
        /// Hash of the encoder that the vectors are from.
        found: String,
    },
    /// A dense index that was built with other options.
    #[error("{path}: expected an index built with {expected}, found {found}; build the index again")]
    OtherOptions {
        /// The header file.
        path: PathBuf,
        /// The options asked for.
        expected: String,
        /// The options that it was built with.
        found: String,
    },
    /// A vector that cannot be stored or searched for.
    #[error("vector {vector}: expected {expected}, found {found}")]
    Vector {
        /// Its number: the passage's, or the query's in its batch.
        vector: usize,
        /// What would be right.
        expected: String,
        /// What it is.
        found: String,
    },
    /// More of something than the format can count.
    #[error("the index would hold more than {most} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The most that fits.
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
