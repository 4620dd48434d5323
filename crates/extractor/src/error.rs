//! What can go wrong when facts are extracted.

use std::path::{Path, PathBuf};

use sporran_checkpoint::Error as Model;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way in which extraction can fail.
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
        /// What is wrong.
        #[source]
        source: Box<candle_core::Error>,
    },
    /// A tagger of other labels.
    #[error("{path}: field `labels`: expected {expected:?}, found {found:?}")]
    Labels {
        /// The file.
        path: PathBuf,
        /// Those of this program.
        expected: Vec<String>,
        /// Those of the file.
        found: Vec<String>,
    },
    /// A model that does not tag.
    #[error("{folder}: expected a head for token classification, found {found}")]
    Head {
        /// The model's folder.
        folder: PathBuf,
        /// What it has.
        found: &'static str,
    },
    /// A model's folder whose parts do not fit each other.
    #[error("{what}: expected {expected}, found {found}")]
    Model {
        /// The file or the part.
        what: String,
        /// What would be right.
        expected: String,
        /// What it is.
        found: String,
    },
    /// An annotation outside its document.
    #[error("document `{document}`, {field}: {message}")]
    Misplaced {
        /// The document.
        document: String,
        /// What was annotated.
        field: String,
        /// What is wrong with its place.
        message: String,
    },
}

impl Error {
    /// The error of a file whose sizes do not fit its weights. `field` names the file's field for a tensor, its expected shape and
    /// its shape. Other errors stay as they are.
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
