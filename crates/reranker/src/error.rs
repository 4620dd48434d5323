//! Errors of reranking.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of reranking.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the model, its folder or its tokenizer.
    #[error(transparent)]
    Transformers(#[from] sporran_checkpoint::Error),
    /// An error of a file in the reranker's folder.
    #[error(transparent)]
    Kilt(#[from] sporran_kilt::Error),
    /// An endpoint.
    #[error(transparent)]
    Remote(#[from] sporran_remote::Error),
    /// A value cannot be written as JSON.
    #[error("{path}: writing JSON failed")]
    Json {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The model does not score pairs.
    #[error(
        "{folder}: expected a head for sequence classification with one label or two, found {found}; a passage needs one \
         score: the logit of one label, or that of the second of two less that of the first"
    )]
    Head {
        /// The model's folder.
        folder: PathBuf,
        /// The head or the kind that was found.
        found: String,
    },
    /// An option outside its range.
    #[error("{option}: expected {expected}, found {found}")]
    Option {
        /// The option's name in a config.
        option: &'static str,
        /// The expected values.
        expected: &'static str,
        /// The value that was found.
        found: String,
    },
}
