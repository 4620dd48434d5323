//! The errors of this crate.

use std::path::PathBuf;

use crate::Summary;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors that end the reading of a whole source. A file that cannot be read alone is a [`Problem`](crate::Problem).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of files and folders.
    #[error(transparent)]
    Kilt(#[from] sporran_kilt::Error),
    /// A pattern of `include` or `exclude` that is no glob.
    #[error("`{key}`: expected a glob, found `{pattern}`: {message}")]
    Pattern {
        /// The option.
        key: &'static str,
        /// The pattern.
        pattern: String,
        /// The mistake.
        message: String,
    },
    /// No file of the source could be read.
    #[error("no page could be read from {}{}", join(.paths), problems(.summary))]
    Nothing {
        /// The paths of the source.
        paths: Vec<PathBuf>,
        /// The problems of all files.
        summary: Box<Summary>,
    },
    /// A source with `strict = true` has files that cannot be read whole.
    #[error("`strict` is set, and {} files could not be read whole{}", .summary.incomplete(), problems(.summary))]
    Strict {
        /// The problems of all files.
        summary: Box<Summary>,
    },
}

fn join(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The first problems, as the end of a message.
fn problems(summary: &Summary) -> String {
    let lines = summary.lines();
    match lines.is_empty() {
        true => ": no files were found".to_owned(),
        false => format!(":\n  {}", lines.join("\n  ")),
    }
}

impl Error {
    /// Whether the input is wrong: exit code 2 instead of 1.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Kilt(error) => error.is_input(),
            Self::Pattern { .. } | Self::Nothing { .. } | Self::Strict { .. } => true,
        }
    }
}
