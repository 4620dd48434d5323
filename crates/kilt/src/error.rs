//! The errors of this crate.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use sporran_config::words::plain_json;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of reading, writing, storing and scoring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to open, read or write a file.
    #[error("{path}: {action} failed")]
    Io {
        /// The file.
        path: PathBuf,
        /// The failed action: `open`, `read`, `write`, `rename`.
        action: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A damaged or truncated compressed file.
    #[error("{path}: after line {line}: the compressed stream is damaged or cut off")]
    Compressed {
        /// The file.
        path: PathBuf,
        /// The last complete line, counted from 1.
        line: u64,
        /// The decoder's error.
        #[source]
        source: std::io::Error,
    },
    /// A compressed file that unpacks to far more than its size.
    #[error(
        "{path}: expected at most {limit} times the bytes of the compressed file, found more; --max-expansion raises the limit"
    )]
    Expansion {
        /// The file.
        path: PathBuf,
        /// The limit, as in [`Limits::expansion`](crate::jsonl::Limits::expansion).
        limit: u64,
    },
    /// A zstd file whose window takes more memory than the limit.
    #[error(
        "{path}: expected a zstd window of at most {limit} MiB, found a longer one; --max-window raises the limit"
    )]
    Window {
        /// The file.
        path: PathBuf,
        /// The limit in MiB, as in [`Limits::window`](crate::jsonl::Limits::window).
        limit: u64,
    },
    /// A line, or an element of a JSON array, that is longer than the limit.
    #[error(
        "{path}:{line}: expected at most {limit} bytes in a line, found more; --max-line raises the limit"
    )]
    Long {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The limit, as in [`Limits::line`](crate::jsonl::Limits::line).
        limit: u64,
    },
    /// A line that is not valid UTF-8.
    #[error("{path}:{line}: invalid UTF-8 at byte {byte} of the line{}", in_latin(.latin.as_deref()))]
    Utf8 {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The first wrong byte in the line, counted from 0.
        byte: usize,
        /// The word with this byte in Windows-1252, if the line has no character of UTF-8 beyond ASCII.
        latin: Option<String>,
    },
    /// Text in another encoding than UTF-8.
    #[error(
        "{path}: expected text in UTF-8, found {encoding}; convert it, such as by `iconv -f {encoding} -t UTF-8`"
    )]
    Encoding {
        /// The file.
        path: PathBuf,
        /// The encoding, as `iconv` names it.
        encoding: &'static str,
    },
    /// A line that is not the expected record.
    #[error("{path}:{line}: {}{message}", of_field(.field))]
    Record {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The path of the field, such as `output[0].provenance[1].title`; `.` is the record itself.
        field: String,
        /// The expected and the actual value.
        message: String,
    },
    /// The same id on two lines of one file.
    #[error("{path}:{line}: field `{field}`: `{id}` stands on line {first} already")]
    DuplicateId {
        /// The file.
        path: PathBuf,
        /// The line of the second one, counted from 1.
        line: u64,
        /// The line of the first one.
        first: u64,
        /// The field with the id.
        field: &'static str,
        /// The id.
        id: String,
    },
    /// A file without records.
    #[error("{path}: expected at least one {what}, found none")]
    Empty {
        /// The file.
        path: PathBuf,
        /// The kind of record.
        what: &'static str,
    },
    /// A gold record without a prediction.
    #[error("{path}: no prediction for id `{id}` ({count} of the gold ids have none)")]
    MissingPrediction {
        /// The file of predictions.
        path: PathBuf,
        /// The first id without a prediction.
        id: String,
        /// The number of ids without a prediction.
        count: usize,
    },
    /// A store file that does not match its manifest.
    #[error("{path}: {message}")]
    Store {
        /// The file or folder.
        path: PathBuf,
        /// The expected and the actual value.
        message: String,
    },
    /// A file that was damaged after it was written.
    #[error(
        "{path}: the checksum is wrong: expected BLAKE3 {expected}, found {found}; the file was damaged after it was written; delete the folder {folder}, and the next run builds it again"
    )]
    Checksum {
        /// The file.
        path: PathBuf,
        /// The hash in the header.
        expected: String,
        /// The actual hash.
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
    /// A new store or index cannot replace a path of another kind.
    #[error(
        "{path}: expected nothing, or a folder of the same kind, at this path, found something else; move it away or choose another folder"
    )]
    InTheWay {
        /// The path.
        path: PathBuf,
    },
    /// A shard that cannot be merged.
    #[error("{folder}: {fault} shard: {message}")]
    Shard {
        /// The folder of the shard.
        folder: PathBuf,
        /// What is wrong with it.
        fault: ShardFault,
        /// The expected and the actual value.
        message: String,
    },

    /// An argument outside its range.
    #[error("{0}")]
    Argument(String),
}

/// What is wrong with a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardFault {
    /// A shard that is not there, or is not finished.
    Missing,
    /// Two folders of the same shard.
    Doubled,
    /// A shard of other contents of its inputs.
    Stale,
    /// A shard of another work.
    Foreign,
    /// A shard whose files were changed.
    Damaged,
}

impl fmt::Display for ShardFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "missing",
            Self::Doubled => "doubled",
            Self::Stale => "stale",
            Self::Foreign => "foreign",
            Self::Damaged => "damaged",
        })
    }
}

/// The field of a page's id.
pub(crate) const PAGE_ID: &str = "wikipedia_id";

/// The part of a message that names the field; nothing for the record itself.
fn of_field(field: &str) -> String {
    if field == "." { String::new() } else { format!("field `{field}`: ") }
}

/// The part of a message that names Windows-1252.
fn in_latin(word: Option<&str>) -> String {
    word.map_or_else(String::new, |word| {
        format!(
            "; in Windows-1252 (Latin-1) it is `{word}`; if that is right, convert the file by `iconv -f WINDOWS-1252 -t UTF-8`"
        )
    })
}

/// The characters of the bytes from 0x80 to 0x9F in Windows-1252; U+FFFD for those without one. The bytes after them are
/// those of Latin-1.
const WINDOWS_1252: [char; 32] = [
    '€', '\u{FFFD}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{FFFD}', 'Ž', '\u{FFFD}',
    '\u{FFFD}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{FFFD}', 'ž', 'Ÿ',
];

/// The word around a byte of a line, in Windows-1252; none for text that has other characters of UTF-8.
fn latin(bytes: &[u8], at: usize) -> Option<String> {
    const MOST: usize = 20;
    if !bytes[..at].is_ascii() || bytes.utf8_chunks().any(|chunk| !chunk.valid().is_ascii()) {
        return None;
    }
    let is_end = |byte: &u8| byte.is_ascii() && !byte.is_ascii_alphanumeric();
    let start = bytes[..at].iter().rposition(is_end).map_or(0, |end| end + 1).max(at.saturating_sub(MOST));
    let end = bytes[at..].iter().position(is_end).map_or(bytes.len(), |end| at + end).min(at + MOST);
    let of = |&byte: &u8| match byte {
        0x80..=0x9F => WINDOWS_1252[usize::from(byte - 0x80)],
        _ => char::from(byte),
    };
    Some(bytes[start..end].iter().map(of).collect())
}

impl Error {
    /// An [`Error::Utf8`] for bytes of a line that begin at a column.
    pub(crate) fn utf8(
        path: &Path,
        line: u64,
        (column, bytes): (usize, &[u8]),
        error: std::str::Utf8Error,
    ) -> Self {
        let at = error.valid_up_to();
        let latin = bytes.get(at).and_then(|_| latin(bytes, at));
        Self::Utf8 { path: path.to_owned(), line, byte: column + at, latin }
    }

    /// An [`Error::Io`] for `path`.
    pub fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), action, source }
    }

    /// The error of reading a compressed file after `line`: [`Error::Expansion`] or [`Error::Window`] where the reader reports it, or
    /// else [`Error::Compressed`].
    pub(crate) fn compressed(path: &Path, line: u64, source: std::io::Error) -> Self {
        let path = path.to_owned();
        match crate::jsonl::TooMuch::of(&source) {
            Some(limit) => Self::Expansion { path, limit },
            // zstd's text of its code `frameParameter_windowTooLarge`.
            None if source.to_string().contains("requires too much memory") => {
                Self::Window { path, limit: crate::jsonl::Limits::current().window >> 20 }
            }
            None => Self::Compressed { path, line, source },
        }
    }

    /// An [`Error::Record`] at a line of `path`.
    pub fn record(path: &Path, line: u64, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Record { path: path.to_owned(), line, field: field.into(), message: message.into() }
    }

    /// The error with `name` as the field of ids, if it is about an id of a page.
    pub(crate) fn with_ids_in(self, name: &'static str) -> Self {
        match self {
            Self::DuplicateId { path, line, first, id, .. } => {
                Self::DuplicateId { path, line, first, field: name, id }
            }
            Self::Record { path, line, field, message } if field == PAGE_ID => {
                Self::Record { path, line, field: name.to_owned(), message }
            }
            other => other,
        }
    }

    /// An [`Error::Shard`] for `folder`.
    pub fn shard(folder: &Path, fault: ShardFault, message: impl Into<String>) -> Self {
        Self::Shard { folder: folder.to_owned(), fault, message: message.into() }
    }

    /// An [`Error::Store`] for `path`.
    pub fn store(path: &Path, message: impl Into<String>) -> Self {
        Self::Store { path: path.to_owned(), message: message.into() }
    }

    /// Whether the input (a file's content or an argument) is wrong: exit code 2 instead of 1.
    pub fn is_input(&self) -> bool {
        use std::io::ErrorKind;
        match self {
            Self::Io { action, source, .. } => match source.kind() {
                ErrorKind::NotFound => *action == "open",
                // A file where a folder should be, or the reverse; a name that no file can have.
                ErrorKind::NotADirectory
                | ErrorKind::IsADirectory
                | ErrorKind::InvalidFilename
                | ErrorKind::InvalidInput => true,
                _ => false,
            },
            _ => true,
        }
    }
}

/// An error with its causes, as one line. Errors of serde_json are in plain words.
#[must_use]
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let errors = std::iter::successors(Some(error), |error| error.source());
    errors.map(|error| plain_json(&error.to_string())).collect::<Vec<_>>().join("; because: ")
}
