//! What can go wrong when a knowledge base is reasoned over.

use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way in which reasoning can fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An input file.
    #[error(transparent)]
    Kilt(#[from] sporran_kilt::Error),
    /// An option of an embedding that training cannot follow.
    #[error("`embedding.{key}`: {message}")]
    Options {
        /// Its key below `embedding`.
        key: &'static str,
        /// What was expected and what was found.
        message: String,
    },
    /// A model's file or folder that is not what it has to be.
    #[error("{path}: {message}")]
    Model {
        /// The file or folder.
        path: PathBuf,
        /// What was expected and what was found.
        message: String,
    },
    /// A table that is kept otherwise than an operation needs.
    #[error("expected {expected}, found them kept otherwise")]
    Storage {
        /// How it has to be kept.
        expected: &'static str,
    },
    /// A model.
    #[error(transparent)]
    Transformers(#[from] sporran_checkpoint::Error),
    /// A tensor operation.
    #[error(transparent)]
    Tensor(#[from] candle_core::Error),
    /// A built benchmark that gives answers away.
    #[error("{count} leaks in what was built: {}", .leaks.join("; "))]
    Leak {
        /// How many there are.
        count: usize,
        /// The first of them.
        leaks: Vec<String>,
    },
    /// An argument outside its range.
    #[error("{0}")]
    Argument(String),
}

impl Error {
    /// An [`Error::Model`] for `path`.
    pub(crate) fn model(path: &Path, message: impl Into<String>) -> Self {
        Self::Model { path: path.to_owned(), message: message.into() }
    }

    /// Whether the input (a file's content or an argument) is at fault, rather than the work: exit code 2, not 1.
    #[must_use]
    pub fn is_input(&self) -> bool {
        match self {
            Self::Kilt(error) => error.is_input(),
            Self::Options { .. } | Self::Model { .. } | Self::Argument(_) => true,
            Self::Leak { .. } | Self::Transformers(_) => true,
            Self::Storage { .. } | Self::Tensor(_) => false,
        }
    }
}
