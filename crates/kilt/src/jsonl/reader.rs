//! Lines and records, one after the other.

use std::{io, path::Path, sync::Arc};

use serde::de::DeserializeOwned;

use super::{Input, InputFile, Limits, Position, parse, read_line, utf8};
use crate::{Error, Result};

/// Lines of a file, counted from 1.
pub struct Reader {
    pub(super) file: Arc<InputFile>,
    pub(super) input: Input,
    /// The last complete line.
    pub(super) line: u64,
    buffer: Vec<u8>,
    /// The start of an incomplete line; only chunks leave one.
    pub(super) rest: Vec<u8>,
}

/// Opens a file, plain, gzip or zstd; `-` is standard input.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened or its first bytes cannot be read; [`Error::Compressed`];
/// [`Error::Encoding`] for text in UTF-16 or UTF-32.
pub fn open(path: impl AsRef<Path>) -> Result<Reader> {
    let path = path.as_ref();
    let input = Input::open(path)?;
    let file = Arc::new(InputFile::new(path));
    Ok(Reader { file, input, line: 0, buffer: Vec::new(), rest: Vec::new() })
}

impl Reader {
    /// The file's path, for errors.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// The file, to parse its lines.
    pub fn file(&self) -> Arc<InputFile> {
        Arc::clone(&self.file)
    }

    /// The number of the last line read, blank ones included; 0 before the first.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// How far the file has been read.
    pub fn position(&self) -> Position {
        self.input.position.clone()
    }

    /// The next line that is not blank with its number, without its line end; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Compressed`] for a damaged or truncated stream, [`Error::Expansion`]; [`Error::Long`].
    pub fn next_line(&mut self) -> Result<Option<(u64, &[u8])>> {
        loop {
            self.buffer.clear();
            let most = Limits::current().line;
            let read = read_line(&mut *self.input.bytes, &mut self.buffer, most);
            match read.map_err(|source| self.failure(source))? {
                Some(0) => return Ok(None),
                Some(_) => self.line += 1,
                None => return Err(self.too_long(most)),
            }
            if !self.buffer.trim_ascii().is_empty() {
                // Only the line end is removed: blanks before it may belong to a TSV field.
                let end = self
                    .buffer
                    .iter()
                    .rposition(|byte| !matches!(byte, b'\n' | b'\r'))
                    .map_or(0, |at| at + 1);
                self.buffer.truncate(end);
                return Ok(Some((self.line, &self.buffer)));
            }
        }
    }

    pub(super) fn failure(&self, source: io::Error) -> Error {
        if self.input.compressed {
            Error::compressed(&self.file, self.line, source)
        } else {
            Error::io(&self.file, "read", source)
        }
    }

    /// The error for the next line, which has more than `most` bytes.
    pub(super) fn too_long(&self, most: u64) -> Error {
        Error::Long { path: self.file.to_path_buf(), line: self.line + 1, limit: most }
    }

    /// Every line as text, with its number.
    pub fn lines(mut self) -> impl Iterator<Item = Result<(u64, String)>> {
        let file = Arc::clone(&self.file);
        std::iter::from_fn(move || match self.next_line() {
            Ok(None) => None,
            Ok(Some((line, bytes))) => Some(utf8(&file, line, bytes).map(|text| (line, text.to_owned()))),
            Err(error) => Some(Err(error)),
        })
        .scan(false, stop_after_error)
    }

    /// Every line as a record.
    pub fn records<T: DeserializeOwned>(self) -> impl Iterator<Item = Result<T>> {
        self.numbered().map(|record| record.map(|(_, record)| record))
    }

    /// Every line as a record, with its number.
    pub fn numbered<T: DeserializeOwned>(mut self) -> impl Iterator<Item = Result<(u64, T)>> {
        let file = Arc::clone(&self.file);
        std::iter::from_fn(move || match self.next_line() {
            Ok(None) => None,
            Ok(Some((line, bytes))) => Some(parse(&file, line, bytes).map(|record| (line, record))),
            Err(error) => Some(Err(error)),
        })
        .scan(false, stop_after_error)
    }
}

/// Ends an iterator after its first error.
fn stop_after_error<T>(failed: &mut bool, item: Result<T>) -> Option<Result<T>> {
    if *failed {
        return None;
    }
    *failed = item.is_err();
    Some(item)
}
