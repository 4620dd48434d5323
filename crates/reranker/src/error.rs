//! What can go wrong when passages are scored.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way in which reranking can fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model, its folder or its tokenizer.
    #[error(transparent)]
    Transformers(#[from] sporran_checkpoint::Error),
    /// A file of a reranker's folder.
    #[error(transparent)]
    Kilt(#[from] sporran_kilt::Error),
    /// A value that has no form in JSON.
    #[error("{path}: writing JSON failed")]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// A model that does not score pairs.
    #[error(
        "{folder}: expected a head for sequence classification with one label or two, found {found}; a passage needs one \
         score: the logit of one label, or that of the second of two less that of the first"
    )]
    Head {
        /// The model's folder.
        folder: PathBuf,
        /// What it has.
        found: String,
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
}
