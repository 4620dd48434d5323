//! DPR's corpus, `psgs_w100.tsv`: `id TAB text TAB title` with a header and csv quotes.
//!
//! A field that starts with a quote ends at the next single quote. Inside, `""` is a quote, and tabs and line
//! ends are text. Quotes elsewhere are text. Python's `csv` reads and writes the same format.

use std::path::Path;

use serde_json::Map;

use super::{Document, stream::Stream};
use crate::{Error, Result, jsonl};

const HEADER: [&str; 3] = ["id", "text", "title"];
/// The longest row. An unclosed quote must not swallow the file.
const MAX_ROW: usize = 1 << 24;

/// The documents of a file, plain, gzip or zstd, with their lines; the header may be missing. Ends after the first
/// error.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened; an item is [`Error::Record`] for a row of another number of columns,
/// an empty id or an open quote, [`Error::Utf8`] or [`Error::Compressed`].
pub fn read(path: &Path) -> Result<impl Iterator<Item = Result<(u64, Document)>> + use<>> {
    let mut rows = Rows::open(path)?;
    let mut done = false;
    Ok(std::iter::from_fn(move || {
        if done {
            return None;
        }
        let item = rows.document().transpose();
        done = !matches!(item, Some(Ok(_)));
        item
    }))
}

/// The rows of a file. `csv-core` gets them line by line, so that an error names its line and a quote without an end is
/// an error.
struct Rows {
    stream: Stream<'static>,
    parser: csv_core::Reader,
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
    fn open(path: &Path) -> Result<Self> {
        let parser = csv_core::ReaderBuilder::new()
            .delimiter(b'\t')
            // A carriage return that is not part of a line end is text.
            .terminator(csv_core::Terminator::Any(b'\n'))
            .build();
        let (row, fields, ends) = (Vec::new(), Vec::new(), vec![0; HEADER.len() + 1]);
        Ok(Self { stream: Stream::open(path)?, parser, row, fields, written: 0, ends, count: 0 })
    }

    /// The next document with the line on which its row starts.
    fn document(&mut self) -> Result<Option<(u64, Document)>> {
        loop {
            let Some(line) = self.next()? else { return Ok(None) };
            let path = self.stream.path();
            if self.count != HEADER.len() {
                Stream::text(path, (line, 0), &self.row)?;
                let field = if self.count < HEADER.len() { column(self.count) } else { "4".to_owned() };
                let message = format!("expected the 3 columns id, text, title, found {}", self.count);
                return Err(Error::record(path, line, field, message));
            }
            let [id, text, title] = [self.field(0, line)?, self.field(1, line)?, self.field(2, line)?];
            // Files that were put together have several headers.
            if [id, text, title] == HEADER {
                continue;
            }
            let id = id.trim();
            if id.is_empty() {
                return Err(Error::record(path, line, "id", "expected an id, found an empty column"));
            }
            let (title, text) = (title.into(), text.into());
            return Ok(Some((line, Document { id: id.into(), title, text, metadata: Map::new() })));
        }
    }

    /// Reads the next row that is not blank, and returns the line on which it starts.
    fn next(&mut self) -> Result<Option<u64>> {
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
                return Err(Error::record(self.stream.path(), line, column(self.count), message));
            }
        }
        // A row ends at a line feed outside of quotes; carriage returns before it belong to the line end.
        let ending = self.row.strip_suffix(b"\n").unwrap_or(&self.row);
        self.ends[self.count - 1] -= ending.iter().rev().take_while(|&&byte| byte == b'\r').count();
        Ok(Some(line))
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
    fn field(&self, index: usize, line: u64) -> Result<&str> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        let field = &self.fields[start..self.ends[index]];
        // An error names the byte of the row.
        str::from_utf8(field).or_else(|_| Stream::text(self.stream.path(), (line, 0), &self.row))
    }
}

fn column(at: usize) -> String {
    HEADER.get(at).map_or_else(|| (at + 1).to_string(), |&name| name.to_owned())
}

/// Writes documents as rows under the header.
pub struct Writer(jsonl::Writer);

impl Writer {
    /// Starts a file; `.gz` and `.zst` compress, `-` is standard output.
    ///
    /// # Errors
    /// As [`jsonl::Writer::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let mut writer = jsonl::Writer::create(path)?;
        writer.line(HEADER.join("\t").as_bytes())?;
        Ok(Self(writer))
    }

    /// Writes one row.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails.
    pub fn document(&mut self, document: &Document) -> Result<()> {
        let mut row = String::new();
        for (at, field) in [&document.id, &document.text, &document.title].into_iter().enumerate() {
            if at > 0 {
                row.push('\t');
            }
            if field.contains(['"', '\t', '\n', '\r']) {
                row.push('"');
                row.push_str(&field.replace('"', "\"\""));
                row.push('"');
            } else {
                row.push_str(field);
            }
        }
        self.0.line(row.as_bytes())
    }

    /// Completes the file and renames it to its path.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails; then no file appears.
    pub fn finish(self) -> Result<()> {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_bytes(bytes: &[u8]) -> Result<Vec<(u64, Document)>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("psgs.tsv");
        std::fs::write(&path, bytes).unwrap();
        read(&path)?.collect()
    }

    #[test]
    fn quotes_follow_csv() {
        let rows = read_bytes(
            b"id\ttext\ttitle\r\n1\t\"Aaron ( or ; \"\"Ahron\"\") is\"\tAaron\r\n\n2\tsays \"hi\" here\t\"Heroes\n and tabs\t\"\n3\t\"\"\tEmpty",
        )
        .unwrap();
        let found: Vec<_> =
            rows.iter().map(|(line, d)| (*line, d.id.as_str(), d.text.as_str(), d.title.as_str())).collect();
        let expected = [
            (2, "1", "Aaron ( or ; \"Ahron\") is", "Aaron"),
            (4, "2", "says \"hi\" here", "Heroes\n and tabs\t"),
            (6, "3", "", "Empty"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn files_that_were_put_together_have_several_headers() {
        let one = b"id\ttext\ttitle\n1\ta\tA\n";
        let rows = read_bytes(&[&b"\n"[..], one, one].concat()).unwrap();
        assert_eq!(rows.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn byte_order_marks_and_line_ends_are_no_text() {
        let bytes = b"\xef\xbb\xbfid\ttext\ttitle\r\n1\ta\rb\t\"T\r\"\r\r\n \t\t\r\n2\tc\t\"U\"v \"w\"\r";
        let rows = read_bytes(bytes).unwrap();
        let found: Vec<_> = rows.iter().map(|(line, d)| (*line, d.text.as_str(), d.title.as_str())).collect();
        assert_eq!(found, [(2, "a\rb", "T\r"), (4, "c", "Uv \"w\"")]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("psgs.tsv.gz");
        let documents: Vec<Document> = ["plain", "a \"b\"", "\"", "tab\there", "two\nlines\r\n", "", " é "]
            .iter()
            .enumerate()
            .map(|(at, text)| Document {
                id: at.to_string(),
                title: text.chars().rev().collect(),
                text: (*text).into(),
                metadata: Map::new(),
            })
            .collect();
        let mut writer = Writer::create(&path).unwrap();
        documents.iter().for_each(|document| writer.document(document).unwrap());
        writer.finish().unwrap();
        let again: Vec<Document> = read(&path).unwrap().map(|row| row.unwrap().1).collect();
        assert_eq!(again, documents);
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let long = [b"1\ta\tb\n2\t\"".as_slice(), &b"open\n".repeat(10)].concat();
        let cases: [(&[u8], &str); 7] = [
            (
                b"1\ta\tb\n2\ta\n",
                "psgs.tsv:2: field `title`: expected the 3 columns id, text, title, found 2",
            ),
            (b"1\ta\tb\n2\ta\tb\tc\n", "psgs.tsv:2: field `4`: expected the 3 columns"),
            (b"1\ta\tb\n2\ta\tb\tc\td\te\tf\tg\th", "title, found 9"),
            (&long, "psgs.tsv:2: field `text`: expected a quote that ends the field"),
            (b"1\ta\tb\n\ta\tb\n", "psgs.tsv:2: field `id`: expected an id"),
            (b"1\ta\tb\n2\ta\xff\tb\n", "psgs.tsv:2: invalid UTF-8 at byte 3"),
            (b"1\ta\tb\n2\t\"a\n\xff\"\tb\n", "psgs.tsv:3: invalid UTF-8 at byte 0"),
        ];
        for (bytes, expected) in cases {
            let message = read_bytes(bytes).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }
}
