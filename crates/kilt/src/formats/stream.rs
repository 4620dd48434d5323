//! Bytes of a plain, gzip or zstd file, for formats that are not one JSON record a line.

use std::{
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use crate::{
    Error, Result,
    jsonl::{BUFFER, Input, InputFile},
};

/// A file's bytes with the current position.
pub(crate) struct Stream<'a> {
    file: InputFile,
    input: Box<dyn BufRead + 'a>,
    compressed: bool,
    /// The line that the next byte belongs to, counted from 1.
    line: u64,
    /// The column of the next byte, counted from 0.
    column: usize,
}

impl Stream<'static> {
    /// Opens a file, plain, gzip or zstd; `-` is standard input.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be opened or its first bytes cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let Input { bytes, compressed, .. } = Input::open(path)?;
        Ok(Self { file: InputFile::new(path), input: bytes, compressed, line: 1, column: 0 })
    }
}

impl<'a> Stream<'a> {
    /// The bytes of an archive member; `path` names it in errors.
    pub(crate) fn member(path: PathBuf, input: impl Read + 'a) -> Self {
        let input = Box::new(BufReader::with_capacity(BUFFER, input));
        Self { file: InputFile::new(path), input, compressed: true, line: 1, column: 0 }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file
    }

    /// The file, which counts half surrogate pairs.
    pub(crate) fn file(&self) -> &InputFile {
        &self.file
    }

    /// The line and the column of the next byte.
    pub(crate) fn place(&self) -> (u64, usize) {
        (self.line, self.column)
    }

    /// The next bytes; empty at the end.
    pub(crate) fn fill(&mut self) -> Result<&[u8]> {
        // The borrow checker does not end the borrow early in one arm only, so the buffer is requested twice.
        if let Err(source) = self.input.fill_buf() {
            return Err(self.failure(source));
        }
        self.input.fill_buf().map_err(|source| Error::io(&self.file, "read", source))
    }

    /// Appends the first `count` bytes of [`fill`](Self::fill) to `to` and consumes them.
    pub(crate) fn take(&mut self, count: usize, to: &mut Vec<u8>) -> Result<()> {
        let taken = &self.fill()?[..count];
        let lines = taken.iter().filter(|&&byte| byte == b'\n').count() as u64;
        let last = taken.iter().rposition(|&byte| byte == b'\n');
        to.extend_from_slice(taken);
        self.line += lines;
        self.column = last.map_or(self.column + count, |at| count - at - 1);
        self.input.consume(count);
        Ok(())
    }

    /// Appends the rest of the line with its line end; `false` at the end of the file.
    pub(crate) fn read_line(&mut self, to: &mut Vec<u8>) -> Result<bool> {
        let before = to.len();
        let read = self.input.read_until(b'\n', to).map_err(|source| self.failure(source))?;
        if to[before..].ends_with(b"\n") {
            (self.line, self.column) = (self.line + 1, 0);
        } else {
            self.column += read;
        }
        Ok(read > 0)
    }

    /// The bytes without positions, for a reader of another format.
    pub(crate) fn as_read(&mut self) -> &mut (dyn BufRead + 'a) {
        &mut *self.input
    }

    fn failure(&self, source: io::Error) -> Error {
        if self.compressed {
            Error::Compressed { path: self.file.to_path_buf(), line: self.line - 1, source }
        } else {
            Error::io(&self.file, "read", source)
        }
    }

    /// The text of `bytes` that start at a line and a column.
    pub(crate) fn text<'b>(path: &Path, (line, column): (u64, usize), bytes: &'b [u8]) -> Result<&'b str> {
        std::str::from_utf8(bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            let lines = before.iter().filter(|&&byte| byte == b'\n').count() as u64;
            let (start, column) = match before.iter().rposition(|&byte| byte == b'\n') {
                Some(at) => (at + 1, 0),
                None => (0, column),
            };
            let rest = bytes[start..].split(|&byte| byte == b'\n').next().unwrap_or_default();
            let elsewhere = |error| Error::utf8(path, line + lines, (column, rest), error);
            std::str::from_utf8(rest).err().map_or_else(|| elsewhere(error), elsewhere)
        })
    }
}
