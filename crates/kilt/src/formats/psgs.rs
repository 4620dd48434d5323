//! DPR's corpus, `psgs_w100.tsv`: `id TAB text TAB title` with a header and csv quotes.
//!
//! A field that starts with a quote ends at the next single quote. Inside, `""` is a quote, and tabs and line
//! ends are text. Quotes elsewhere are text. Python's `csv` reads and writes the same format.

use std::path::Path;

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
    let mut stream = Stream::open(path)?;
    let mut row = Vec::new();
    let mut done = false;
    Ok(std::iter::from_fn(move || {
        if done {
            return None;
        }
        let item = next(&mut stream, &mut row).transpose();
        done = !matches!(item, Some(Ok(_)));
        item
    }))
}

fn next(stream: &mut Stream<'_>, row: &mut Vec<u8>) -> Result<Option<(u64, Document)>> {
    loop {
        row.clear();
        let (line, _) = stream.place();
        if !stream.read_line(row)? {
            return Ok(None);
        }
        if row.trim_ascii().is_empty() {
            continue;
        }
        let fields = loop {
            // Quotes, tabs and line ends are ASCII, so bytes can be split before UTF-8 validation.
            match fields(row) {
                Ok(fields) => break fields,
                Err(open) => {
                    if row.len() > MAX_ROW || !stream.read_line(row)? {
                        let message = format!(
                            "expected a quote that ends the field, found none in {} bytes",
                            row.len()
                        );
                        return Err(Error::record(stream.path(), line, column(open), message));
                    }
                }
            }
        };
        let texts: Vec<String> = fields
            .into_iter()
            .map(|field| {
                String::from_utf8(field)
                    .or_else(|_| Stream::text(stream.path(), (line, 0), row).map(str::to_owned))
            })
            .collect::<Result<_>>()?;
        let count = texts.len();
        let Ok([id, text, title]) = <[String; 3]>::try_from(texts) else {
            let field = if count < 3 { column(count) } else { "4".to_owned() };
            let message = format!("expected the 3 columns id, text, title, found {count}");
            return Err(Error::record(stream.path(), line, field, message));
        };
        if line == 1 && [&id, &text, &title].map(String::as_str) == HEADER {
            continue;
        }
        let id = id.trim().to_owned();
        if id.is_empty() {
            return Err(Error::record(stream.path(), line, "id", "expected an id, found an empty column"));
        }
        return Ok(Some((line, Document { id, title, text })));
    }
}

fn column(at: usize) -> String {
    HEADER.get(at).map_or_else(|| (at + 1).to_string(), |&name| name.to_owned())
}

/// A row's fields, or the index of the field with an open quote.
fn fields(row: &[u8]) -> Result<Vec<Vec<u8>>, usize> {
    let end = row.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |at| at + 1);
    let mut fields = Vec::with_capacity(3);
    let mut rest = row;
    loop {
        let mut field = Vec::new();
        if rest.first() == Some(&b'"') {
            rest = &rest[1..];
            loop {
                let quote = rest.iter().position(|&byte| byte == b'"').ok_or(fields.len())?;
                field.extend_from_slice(&rest[..quote]);
                rest = &rest[quote + 1..];
                if rest.first() != Some(&b'"') {
                    break;
                }
                field.push(b'"');
                rest = &rest[1..];
            }
        }
        // The rest of the row may be only its line end, which is after `end`.
        let left = rest.len().saturating_sub(row.len() - end);
        let tab = rest[..left].iter().position(|&byte| byte == b'\t');
        field.extend_from_slice(&rest[..tab.unwrap_or(left)]);
        fields.push(field);
        match tab {
            Some(tab) => rest = &rest[tab + 1..],
            None => return Ok(fields),
        }
    }
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
        let cases: [(&[u8], &str); 6] = [
            (
                b"1\ta\tb\n2\ta\n",
                "psgs.tsv:2: field `title`: expected the 3 columns id, text, title, found 2",
            ),
            (b"1\ta\tb\n2\ta\tb\tc\n", "psgs.tsv:2: field `4`: expected the 3 columns"),
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
