//! Rows of columns with csv quotes, separated by tabs or commas.
//!
//! A field that starts with a quote ends at the next single quote. Inside, `""` is a quote, and separators and line
//! ends are text. Quotes elsewhere are text.

use std::{borrow::Cow, path::Path};

use super::stream::Stream;
use crate::{Error, Result};

/// The longest row. An unclosed quote must not swallow the file.
const MAX_ROW: usize = 1 << 24;

/// The rows of a file. `csv-core` gets them line by line, so that an error names its line and a quote without an end is
/// an error.
pub(crate) struct Rows {
    stream: Stream<'static>,
    parser: csv_core::Reader,
    /// The names of the columns, for errors.
    names: Vec<String>,
    /// The row's bytes.
    row: Vec<u8>,
    /// Its fields one after the other, of which `written` bytes are valid.
    fields: Vec<u8>,
    written: usize,
    /// The ends of its fields, of which `count` are valid.
    ends: Vec<usize>,
    count: usize,
}

impl Rows {
    /// Opens a file, plain, gzip or zstd; `-` is standard input. `names` are the expected columns.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be opened or its first bytes cannot be read.
    pub(crate) fn open(path: &Path, delimiter: u8, names: Vec<String>) -> Result<Self> {
        let parser = csv_core::ReaderBuilder::new()
            .delimiter(delimiter)
            // A carriage return that is not part of a line end is text.
            .terminator(csv_core::Terminator::Any(b'\n'))
            .build();
        let (row, fields, ends) = (Vec::new(), Vec::new(), vec![0; names.len() + 1]);
        Ok(Self { stream: Stream::open(path)?, parser, names, row, fields, written: 0, ends, count: 0 })
    }

    pub(crate) fn path(&self) -> &Path {
        self.stream.path()
    }

    /// Takes the columns' names from the next row, the header. Returns its line; `None` for an empty file.
    ///
    /// # Errors
    /// As [`next`](Self::next), and [`Error::Utf8`].
    pub(crate) fn read_header(&mut self) -> Result<Option<u64>> {
        let Some(line) = self.next()? else { return Ok(None) };
        let names: Result<Vec<String>> =
            (0..self.count).map(|index| Ok(self.field(index, line)?.trim().to_owned())).collect();
        self.names = names?;
        Ok(Some(line))
    }

    /// The names of the columns.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Reads the next row that is not blank, and returns the line on which it starts.
    ///
    /// # Errors
    /// [`Error::Record`] for an open quote, [`Error::Compressed`] or [`Error::Io`].
    pub(crate) fn next(&mut self) -> Result<Option<u64>> {
        let line = loop {
            self.row.clear();
            let (line, _) = self.stream.place();
            if !self.stream.read_line(&mut self.row)? {
                return Ok(None);
            }
            if !self.row.trim_ascii().is_empty() {
                break line;
            }
        };
        (self.written, self.count) = (0, 0);
        let mut start = 0;
        while !self.parse(start) {
            start = self.row.len();
            if start > MAX_ROW || !self.stream.read_line(&mut self.row)? {
                let message = format!("expected a quote that ends the field, found none in {start} bytes");
                return Err(Error::record(self.stream.path(), line, self.column(self.count), message));
            }
        }
        // A row ends at a line feed outside of quotes; carriage returns before it belong to the line end.
        let ending = self.row.strip_suffix(b"\n").unwrap_or(&self.row);
        self.ends[self.count - 1] -= ending.iter().rev().take_while(|&&byte| byte == b'\r').count();
        Ok(Some(line))
    }

    /// Checks that the row has the expected number of columns; `line` is the row's.
    ///
    /// # Errors
    /// [`Error::Record`] for another number, [`Error::Utf8`].
    pub(crate) fn check_width(&self, line: u64) -> Result<()> {
        let (path, expected) = (self.stream.path(), self.names.len());
        if self.count == expected {
            return Ok(());
        }
        Stream::text(path, (line, 0), &self.row)?;
        let field = self.column(self.count.min(expected));
        let names = self.names.join(", ");
        let message = format!("expected the {expected} columns {names}, found {}", self.count);
        Err(Error::record(path, line, field, message))
    }

    /// Parses the line of the row that begins at `start`, and returns whether the row ends with it.
    fn parse(&mut self, start: usize) -> bool {
        // Fields are never longer than the row. The parser needs a byte more than it writes.
        self.fields.resize(self.fields.len().max(self.row.len() + 2), 0);
        let last_line_end: &[u8] = if self.row.ends_with(b"\n") { b"" } else { b"\n" };
        for mut input in [&self.row[start..], last_line_end] {
            while !input.is_empty() {
                let (fields, ends) = (&mut self.fields[self.written..], &mut self.ends[self.count..]);
                let (result, read, written, ended) = self.parser.read_record(input, fields, ends);
                input = &input[read..];
                self.written += written;
                self.count += ended;
                match result {
                    csv_core::ReadRecordResult::Record => return true,
                    csv_core::ReadRecordResult::OutputEndsFull => self.ends.resize(2 * self.ends.len(), 0),
                    _ => {}
                }
            }
        }
        false
    }

    /// A field as text; `line` is the row's.
    ///
    /// # Errors
    /// [`Error::Utf8`].
    pub(crate) fn field(&self, index: usize, line: u64) -> Result<&str> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        let field = &self.fields[start..self.ends[index]];
        // An error names the byte of the row.
        str::from_utf8(field).or_else(|_| Stream::text(self.stream.path(), (line, 0), &self.row))
    }

    fn column(&self, at: usize) -> String {
        self.names.get(at).cloned().unwrap_or_else(|| (at + 1).to_string())
    }
}

/// A field as a row holds it: in quotes if it has a quote, a separator or a line end.
pub(crate) fn quoted(field: &str, separator: char) -> Cow<'_, str> {
    if field.contains(['"', '\n', '\r', separator]) {
        Cow::Owned(format!("\"{}\"", field.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(field)
    }
}
