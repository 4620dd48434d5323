//! What can go wrong with a file of records, a store or a score.

use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way in which reading, writing, storing or scoring can fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to open, read or write a file.
    #[error("{path}: {action} failed")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: `open`, `read`, `write`, `rename`.
        action: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A compressed file ends before its stream does, or its checksum disagrees.
    #[error("{path}: after line {line}: the compressed stream is damaged or cut off")]
    Compressed {
        /// The file.
        path: PathBuf,
        /// The last line that could be read whole, counted from 1.
        line: u64,
        /// What the decoder said.
        #[source]
        source: std::io::Error,
    },
    /// A line that is not valid UTF-8.
    #[error("{path}:{line}: invalid UTF-8 at byte {byte} of the line")]
    Utf8 {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The first wrong byte in the line, counted from 0.
        byte: usize,
    },
    /// A line that is not the record that was expected.
    #[error("{path}:{line}: field `{field}`: {message}")]
    Record {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The path of the field, such as `output[0].provenance[1].title`; `.` is the record itself.
        field: String,
        /// What was expected and what came.
        message: String,
    },
    /// The same id stands on two lines of one file.
    #[error("{path}:{line}: field `id`: `{id}` stands on line {first} already")]
    DuplicateId {
        /// The file.
        path: PathBuf,
        /// The line of the second one, counted from 1.
        line: u64,
        /// The line of the first one.
        first: u64,
        /// The id.
        id: String,
    },
    /// A file without a single record where at least one is needed.
    #[error("{path}: expected at least one {what}, found none")]
    Empty {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// A gold record without a prediction.
    #[error("{path}: no prediction for id `{id}` ({count} of the gold ids have none)")]
    MissingPrediction {
        /// The file of predictions.
        path: PathBuf,
        /// The first id without one.
        id: String,
        /// How many have none.
        count: usize,
    },
    /// A store's file is not what its manifest says.
    #[error("{path}: {message}")]
    Store {
        /// The file or folder.
        path: PathBuf,
        /// What was expected and what was found.
        message: String,
    },
    /// A file whose content is not what was written.
    #[error(
        "{path}: the checksum is wrong: expected BLAKE3 {expected}, found {found}; the file was damaged after it was written; delete the folder {folder}, and the next run builds it again"
    )]
    Checksum {
        /// The file.
        path: PathBuf,
        /// The hash by the header.
        expected: String,
        /// The hash of what is there.
        found: String,
        /// The store or index that the file is part of.
        folder: PathBuf,
    },
    /// A file where a folder is to be made.
    #[error("{path}: expected a folder, found a file")]
    NotAFolder {
        /// The file.
        path: PathBuf,
    },
    /// An input that was written to, replaced or removed between its hashing and its use; nothing of the step is kept.
    #[error("{path}: changed while it was read; run again")]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Something in the place of a new store or index that is none itself, so it is not replaced.
    #[error(
        "{path}: expected nothing, or a folder of the same kind, in the place of the new one, found something else; move it away or choose another folder"
    )]
    InTheWay {
        /// What stands there.
        path: PathBuf,
    },
    /// An argument outside its range.
    #[error("{0}")]
    Argument(String),
}

impl Error {
    /// An [`Error::Io`] for `path`.
    pub fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), action, source }
    }

    /// An [`Error::Record`] at a line of `path`.
    pub fn record(path: &Path, line: u64, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Record { path: path.to_owned(), line, field: field.into(), message: message.into() }
    }

    /// An [`Error::Store`] for `path`.
    pub fn store(path: &Path, message: impl Into<String>) -> Self {
        Self::Store { path: path.to_owned(), message: message.into() }
    }

    /// Whether the input (a file's content or an argument) is at fault, rather than the work: exit code 2, not 1.
    pub fn is_input(&self) -> bool {
        use std::io::ErrorKind;
        match self {
            Self::Io { action, source, .. } => match source.kind() {
                ErrorKind::NotFound => *action == "open",
                // A file where a folder should be, or the other way round.
                ErrorKind::NotADirectory | ErrorKind::IsADirectory => true,
                _ => false,
            },
            _ => true,
        }
    }
}
