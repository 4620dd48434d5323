//! The errors of this crate.

use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of reasoning.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An input file.
    #[error(transparent)]
    Kilt(#[from] sporran_kilt::Error),
    /// An invalid option of an embedding.
    #[error("`embedding.{key}`: {message}")]
    Options {
        /// The key relative to `embedding`.
        key: &'static str,
        /// The expected and the actual value.
        message: String,
    },
    /// An invalid model file or folder.
    #[error("{path}: {message}")]
    Model {
        /// The file or folder.
        path: PathBuf,
        /// The expected and the actual value.
        message: String,
    },
    /// A model of another kind than its options.
    #[error("expected the kind of the model, found `{expected}`; {path} is of kind `{found}`")]
    Kind {
        /// The folder.
        path: PathBuf,
        /// The kind of the options.
        expected: &'static str,
        /// The kind of the model.
        found: &'static str,
    },
    /// A table with a storage type that the operation does not support.
    #[error("expected {expected}, found another storage type")]
    Storage {
        /// The expected storage.
        expected: &'static str,
    },
    /// A model.
    #[error(transparent)]
    Transformers(#[from] sporran_checkpoint::Error),
    /// A tensor operation.
    #[error(transparent)]
    Tensor(#[from] candle_core::Error),
    /// A built benchmark that leaks answers.
    #[error("{count} leaks in the built benchmark: {}", .leaks.join("; "))]
    Leak {
        /// The number of leaks.
        count: usize,
        /// The first leaks.
        leaks: Vec<String>,
    },
    /// An argument outside its range.
    #[error("{0}")]
    Argument(String),
    /// An error of a kind of another crate.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// An [`Error::Model`] for `path`.
    pub(crate) fn model(path: &Path, message: impl Into<String>) -> Self {
        Self::Model { path: path.to_owned(), message: message.into() }
    }

    /// Whether the input (a file's content or an argument) is wrong: exit code 2 instead of 1.
    #[must_use]
    pub fn is_input(&self) -> bool {
        match self {
            Self::Kilt(error) => error.is_input(),
            Self::Options { .. } | Self::Model { .. } | Self::Kind { .. } | Self::Argument(_) => true,
            Self::Leak { .. } | Self::Transformers(_) => true,
            Self::Storage { .. } | Self::Tensor(_) | Self::Other(_) => false,
        }
    }
}
