//! The errors of this crate.

use std::path::{Path, PathBuf};

use sporran_checkpoint::Error as Model;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of extraction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A document or another input file.
    #[error(transparent)]
    Kilt(#[from] sporran_kilt::Error),
    /// A model, its folder or its tokenizer.
    #[error(transparent)]
    Transformers(#[from] sporran_checkpoint::Error),
    /// A file of weights that cannot be read.
    #[error("{path}: reading weights failed")]
    Weights {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<candle_core::Error>,
    },
    /// A tagger with other labels.
    #[error("{path}: field `labels`: expected {expected:?}, found {found:?}")]
    Labels {
        /// The file.
        path: PathBuf,
        /// The labels of this program.
        expected: Vec<String>,
        /// The labels of the file.
        found: Vec<String>,
    },
    /// A model without a token-classification head.
    #[error("{folder}: expected a head for token classification, found {found}")]
    Head {
        /// The model's folder.
        folder: PathBuf,
        /// The head of the model.
        found: &'static str,
    },
    /// An inconsistent model folder.
    #[error("{what}: expected {expected}, found {found}")]
    Model {
        /// The file or part.
        what: String,
        /// The expected value.
        expected: String,
        /// The actual value.
        found: String,
    },
    /// An annotation outside its document.
    #[error("document `{document}`, {field}: {message}")]
    Misplaced {
        /// The document.
        document: String,
        /// The annotation's field.
        field: String,
        /// The problem with its position.
        message: String,
    },
}

impl Error {
    /// The error of a file whose sizes do not match its weights. `field` returns the file's field for a
    /// tensor, its expected shape and its actual shape. Other errors are unchanged.
    pub(crate) fn unfit(
        file: &Path,
        field: impl Fn(&str, &[usize], Option<&[usize]>) -> &'static str,
        error: Model,
    ) -> Self {
        let what = |field: &str| format!("{}: field `{field}`", file.display());
        match error {
            Model::Stored { tensor, expected, found } => Self::Model {
                what: what(field(&tensor, &expected, found.as_deref())),
                expected: match &found {
                    Some(found) => format!("a value for tensor `{tensor}`, whose shape is {found:?}"),
                    None => format!("a value for the weights, which lack a tensor `{tensor}`"),
                },
                found: format!("one for the shape {expected:?}"),
            },
            Model::Options { option, expected, found } => Self::Model { what: what(option), expected, found },
            other => other.into(),
        }
    }
}
