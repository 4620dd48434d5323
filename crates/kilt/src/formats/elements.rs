//! JSON files that are one big array (or JSON lines), read and written element by element.
//!
//! DPR's and FiD's files are arrays of many gigabytes; only one element is in memory at a time.

use std::path::{Path, PathBuf};

use serde::{Serialize, de::DeserializeOwned};

use super::stream::Stream;
use crate::{
    Error, Result,
    jsonl::{
        InputFile, Writer, parse,
        python::{Strict, Wrong},
    },
};

/// The elements of a JSON array, or the values of a file of JSON lines, in the file's order.
pub struct Elements<'a> {
    stream: Stream<'a>,
    layout: Layout,
    buffer: Vec<u8>,
    count: u64,
    done: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// `[a, b]`
    Array,
    /// `{"key": [a, b], ..}`
    Member(&'static str),
    /// `a b`, with white space between.
    Lines,
}

/// Opens a JSON array or JSON lines, detected by the first character; plain, gzip or zstd, `-` is standard
/// input.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened, [`Error::Compressed`] if its stream is damaged.
pub fn open(path: impl AsRef<Path>) -> Result<Elements<'static>> {
    Elements::start(Stream::open(path.as_ref())?, None)
}

/// Opens a file with a JSON object and moves to the array under `key`.
///
/// # Errors
/// As [`open`], and [`Error::Record`] if the content is not an object or has no such array.
pub fn open_member(path: impl AsRef<Path>, key: &'static str) -> Result<Elements<'static>> {
    Elements::start(Stream::open(path.as_ref())?, Some(key))
}

impl<'a> Elements<'a> {
    pub(crate) fn start(stream: Stream<'a>, key: Option<&'static str>) -> Result<Self> {
        let mut elements = Self { stream, layout: Layout::Lines, buffer: Vec::new(), count: 0, done: false };
        if let Some(key) = key {
            elements.layout = Layout::Member(key);
            elements.expect(b'{', ".", "an object")?;
            if !elements.find(key, true)? {
                let message = format!("expected an array under the key `{key}`, found no such key");
                return Err(elements.wrong(key, message));
            }
            elements.expect(b'[', key, "an array")?;
        } else if elements.peek()? == Some(b'[') {
            elements.layout = Layout::Array;
            elements.skip(1)?;
        }
        Ok(elements)
    }

    /// The file's path, for errors.
    pub fn path(&self) -> &Path {
        self.stream.path()
    }

    /// Every element as a record, with the line that it starts on. Ends after the first error.
    pub fn records<T: DeserializeOwned>(mut self) -> impl Iterator<Item = Result<(u64, T)>> + use<'a, T> {
        std::iter::from_fn(move || {
            let item = self.next_record().transpose();
            self.done |= !matches!(item, Some(Ok(_)));
            item
        })
    }

    fn next_record<T: DeserializeOwned>(&mut self) -> Result<Option<(u64, T)>> {
        if self.done {
            return Ok(None);
        }
        let next = self.peek()?;
        if self.layout == Layout::Lines {
            if next.is_none() {
                return Ok(None);
            }
        } else {
            match next {
                Some(b']') => {
                    self.skip(1)?;
                    self.close()?;
                    return Ok(None);
                }
                Some(b',') if self.count > 0 => {
                    self.skip(1)?;
                    self.peek()?;
                }
                Some(_) if self.count == 0 => {}
                found => return Err(self.unexpected(&self.place(), "`,` or `]`", found)),
            }
        }
        let place = self.place();
        let start = self.stream.place();
        self.value(&place)?;
        self.count += 1;
        let bytes = &self.buffer;
        // The fast path first; only a failure pays for tracking the field's path.
        let record = serde_json::from_slice(bytes)
            .or_else(|_| read_otherwise::<T>(self.stream.file(), start, &place, bytes))?;
        Ok(Some((start.0, record)))
    }

    /// The rest of the file after the array must match the layout.
    fn close(&mut self) -> Result<()> {
        if let Layout::Member(key) = self.layout {
            if self.peek()? == Some(b',') {
                self.skip(1)?;
                if self.find(key, false)? {
                    return Err(self.wrong(key, format!("the key `{key}` stands twice")));
                }
            } else {
                self.expect(b'}', ".", "`,` or `}`")?;
            }
        }
        match self.peek()? {
            None => Ok(()),
            found => Err(self.unexpected(".", "the end of the file", found)),
        }
    }

    /// Walks an object's members: `true` at the value of `key`, `false` after the object's end.
    fn find(&mut self, key: &str, mut first: bool) -> Result<bool> {
        loop {
            match self.peek()? {
                Some(b'}') if first => {
                    self.skip(1)?;
                    return Ok(false);
                }
                Some(b'"') => {}
                found => return Err(self.unexpected(".", "a key in quotes", found)),
            }
            first = false;
            let start = self.stream.place();
            self.value(".")?;
            let name: String = serde_json::from_slice(&self.buffer)
                .or_else(|_| read_otherwise::<String>(self.stream.file(), start, ".", &self.buffer))?;
            self.expect(b':', &name, "`:`")?;
            self.peek()?;
            if name == key {
                return Ok(true);
            }
            self.value(&name)?;
            match self.peek()? {
                Some(b',') => self.skip(1)?,
                Some(b'}') => {
                    self.skip(1)?;
                    return Ok(false);
                }
                found => return Err(self.unexpected(&name, "`,` or `}`", found)),
            }
        }
    }

    /// The element's name in errors.
    fn place(&self) -> String {
        match self.layout {
            Layout::Array => format!("[{}]", self.count),
            Layout::Member(key) => format!("{key}[{}]", self.count),
            Layout::Lines => ".".to_owned(),
        }
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            let chunk = self.stream.fill()?;
            let white = chunk.iter().position(|byte| !byte.is_ascii_whitespace());
            match (white, chunk.len()) {
                (_, 0) => return Ok(None),
                (Some(0), _) => return Ok(Some(chunk[0])),
                (Some(count), _) | (None, count) => self.skip(count)?,
            }
        }
    }

    fn skip(&mut self, count: usize) -> Result<()> {
        self.buffer.clear();
        self.stream.take(count, &mut self.buffer)
    }

    fn expect(&mut self, byte: u8, field: &str, what: &str) -> Result<()> {
        match self.peek()? {
            Some(found) if found == byte => self.skip(1),
            found => Err(self.unexpected(field, what, found)),
        }
    }

    /// Reads a whole value into the buffer. It looks only at brackets and quotes; the parser checks the rest.
    fn value(&mut self, field: &str) -> Result<()> {
        self.buffer.clear();
        let (start, _) = self.stream.place();
        let (mut depth, mut string, mut escaped) = (0u64, false, false);
        loop {
            let buffered = self.buffer.len();
            let chunk = self.stream.fill()?;
            if chunk.is_empty() {
                // A bare number or word may end with the file.
                if depth == 0 && !string && buffered > 0 {
                    return Ok(());
                }
                let message = format!(
                    "expected the rest of the value that starts on line {start}, found the end of the file"
                );
                return Err(self.wrong(field, message));
            }
            let mut end = None;
            for (at, &byte) in chunk.iter().enumerate() {
                if string {
                    match byte {
                        _ if escaped => escaped = false,
                        b'\\' => escaped = true,
                        b'"' => {
                            string = false;
                            if depth == 0 {
                                end = Some(at + 1);
                                break;
                            }
                        }
                        _ => {}
                    }
                    continue;
                }
                match byte {
                    b'"' => string = true,
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' | b',' | b':' if depth == 0 => end = Some(at),
                    _ if depth == 0 && byte.is_ascii_whitespace() => end = Some(at),
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            end = Some(at + 1);
                        }
                    }
                    _ => {}
                }
                if end.is_some() {
                    break;
                }
            }
            let count = end.unwrap_or(chunk.len());
            let found = chunk.get(count).copied();
            if end == Some(0) && buffered == 0 {
                return Err(self.unexpected(field, "a value", found));
            }
            self.stream.take(count, &mut self.buffer)?;
            if end.is_some() {
                return Ok(());
            }
        }
    }

    fn unexpected(&self, field: &str, expected: &str, found: Option<u8>) -> Error {
        let found = match found {
            Some(byte) => format!("`{}`", char::from(byte)),
            None => "the end of the file".to_owned(),
        };
        self.wrong(field, format!("expected {expected}, found {found}"))
    }

    fn wrong(&self, field: &str, message: String) -> Error {
        Error::record(self.stream.path(), self.stream.place().0, field, message)
    }
}

/// Reads an element with what Python's `json` module adds to JSON, or explains why it is not the expected record.
fn read_otherwise<T: DeserializeOwned>(
    file: &InputFile,
    start: (u64, usize),
    place: &str,
    bytes: &[u8],
) -> Result<T> {
    let text = Stream::text(file, start, bytes)?;
    let strict = Strict::of(text);
    let read = match &strict {
        Some(strict) => strict.read(),
        None => parse::located(text).map_err(Wrong::of),
    };
    let Wrong { field, message, line, column } = match read {
        Ok(value) => {
            file.replaced(strict.map_or(0, |strict| strict.halves));
            return Ok(value);
        }
        Err(wrong) => wrong,
    };
    let field = match (place, field.as_str()) {
        (_, ".") => place.to_owned(),
        (".", _) => field,
        _ => format!("{place}.{field}"),
    };
    let line_of_file = start.0 + line.saturating_sub(1) as u64;
    let message = match column {
        None => message,
        Some(column) => format!("{message} (column {})", if line <= 1 { start.1 } else { 0 } + column),
    };
    Err(Error::record(file, line_of_file, field, message))
}

/// Writes a JSON array, an element a line, or JSON lines where the file's name says so.
pub struct ElementWriter {
    writer: Writer,
    array: bool,
    count: u64,
}

impl ElementWriter {
    /// Starts a file: JSON lines if its name ends in `.jsonl` (before `.gz` or `.zst`), an array otherwise.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut name = PathBuf::from(path);
        if name.extension().is_some_and(|ending| ending == "gz" || ending == "zst") {
            name.set_extension("");
        }
        let array = name.extension().is_none_or(|ending| ending != "jsonl");
        Ok(Self { writer: Writer::create(path)?, array, count: 0 })
    }

    /// Writes one element.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails.
    pub fn record<T: Serialize + ?Sized>(&mut self, record: &T) -> Result<()> {
        if self.array {
            self.writer.bytes(if self.count == 0 { b"[\n" } else { b"," })?;
        }
        self.count += 1;
        self.writer.record(record)
    }

    /// Completes the file and renames it to its path.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails; then no file appears.
    pub fn finish(mut self) -> Result<()> {
        if self.array {
            self.writer.bytes(if self.count == 0 { b"[]\n" } else { b"]\n" })?;
        }
        self.writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Record, jsonl};

    fn read<T: DeserializeOwned>(bytes: &[u8], key: Option<&'static str>) -> Result<Vec<(u64, T)>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        std::fs::write(&path, bytes).unwrap();
        match key {
            Some(key) => open_member(&path, key)?.records().collect(),
            None => open(&path)?.records().collect(),
        }
    }

    #[test]
    fn arrays_lines_and_members_give_the_same_values() {
        let values =
            [json!({"id": 1, "a": ["]", "\"}", {"b": "\\"}]}), json!({"id": 2}), json!({"id": 3, "é": null})];
        let [a, b, c] = values.clone().map(|value| value.to_string());
        let pretty = serde_json::to_string_pretty(&values).unwrap();
        let member = format!(r#"{{"x": [1, {{"Data": 2}}], "Data": [{a},{b}, {c}], "y": "}}"}}"#);
        let cases = [
            (pretty, None),
            (format!("[{a},{b},{c}]"), None),
            (format!("{a}\n{b}\n\n{c}"), None),
            (member, Some("Data")),
        ];
        for (text, key) in cases {
            let read: Vec<Value> =
                read(text.as_bytes(), key).unwrap().into_iter().map(|(_, value)| value).collect();
            assert_eq!(read, values, "{text}");
        }
        assert!(read::<Value>(b" [ ] ", None).unwrap().is_empty());
        assert!(read::<Value>(b"", None).unwrap().is_empty());
    }

    #[test]
    fn what_python_adds_to_json_is_read() {
        let text = br#"[{"id": 1, "input": "\ud83d"}, {"id": 2, "x": NaN}, {"id": 3}]"#;
        let records: Vec<(u64, Record)> = read(text, None).unwrap();
        assert_eq!((records.len(), records[0].1.input.as_deref()), (3, Some("\u{FFFD}")));
        assert_eq!(records[1].1.extra["x"], Value::Null);
        let score = br#"[{"id": 1},
            {"id": 2, "output": [{"meta": {"score": NaN}, "provenance": 7}]}]"#;
        let message = read::<Record>(score, None).unwrap_err().to_string();
        assert!(message.contains("a.json:2: field `[1].output[0].provenance`"), "{message}");
    }

    #[test]
    fn elements_longer_than_the_buffer_are_read_whole() {
        let long = "x\\\"]".repeat(200_000);
        let text = format!("[{{\"id\":1,\"input\":\"{long}\"}},\n{{\"id\":2}}]");
        let records: Vec<(u64, Record)> = read(text.as_bytes(), None).unwrap();
        assert_eq!(records[0].1.input.as_ref().unwrap().len(), 600_000);
        assert_eq!((records[1].0, records[1].1.id.number()), (2, Some(2)));
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let cases: [(&[u8], Option<&'static str>, &str); 15] = [
            (b"[{\"id\":1},\n{\n\"id\":1.5}]", None, "a.json:3: field `[1].id`: "),
            (
                b"[{\"id\":1},\n{\"id\":2,\"output\":[{\"answer\":1}]}]",
                None,
                "a.json:2: field `[1].output[0].answer`: ",
            ),
            (b"[{\"id\":1},\n{\"input\":\"q\"}]", None, "a.json:2: field `[1]`: missing field `id`"),
            (b"{\"id\":1}\n{\"id\":null}", None, "a.json:2: field `id`: "),
            (b"[{\"id\":1}\n{\"id\":2}]", None, "a.json:2: field `[1]`: expected `,` or `]`, found `{`"),
            (b"[{\"id\":1},\n]", None, "a.json:2: field `[1]`: expected a value, found `]`"),
            (
                b"[{\"id\":1},\n{\"id\":2",
                None,
                "field `[1]`: expected the rest of the value that starts on line 2",
            ),
            (b"[{\"id\":1}", None, "field `[1]`: expected `,` or `]`, found the end of the file"),
            (b"[{\"id\":1}]\n]", None, "a.json:2: expected the end of the file, found `]`"),
            (b"[{\"id\":1},\n{\"id\":\"\xff\"}]", None, "a.json:2: invalid UTF-8 at byte 7"),
            (b"[1]", Some("Data"), "a.json:1: expected an object, found `[`"),
            (b"{\"x\":[]}", Some("Data"), "field `Data`: expected an array under the key `Data`"),
            (b"{\"Data\":3}", Some("Data"), "field `Data`: expected an array, found `3`"),
            (b"{\"Data\":[{\"id\":1},{}]}", Some("Data"), "field `Data[1]`: missing field `id`"),
            (b"{\"Data\":[],", Some("Data"), "expected a key in quotes, found the end of the file"),
        ];
        for (bytes, key, expected) in cases {
            let message = read::<Record>(bytes, key).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }

    #[test]
    fn a_damaged_compressed_array_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json.gz");
        let mut writer = ElementWriter::create(&path).unwrap();
        (0..20_000u32)
            .for_each(|at| writer.record(&json!({ "id": at.wrapping_mul(2_654_435_761) })).unwrap());
        writer.finish().unwrap();
        assert_eq!(open(&path).unwrap().records::<Record>().count(), 20_000);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let results: Vec<_> = open(&path).unwrap().records::<Record>().collect();
        assert!(matches!(results.last(), Some(Err(Error::Compressed { line, .. })) if *line > 100));
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
    }

    #[test]
    fn the_file_name_distinguishes_arrays_from_lines() {
        let folder = tempfile::tempdir().unwrap();
        for (name, expected) in [
            ("a.json", "[\n1\n,2\n]\n"),
            ("a.jsonl", "1\n2\n"),
            ("a.jsonl.gz", "1\n2\n"),
            ("a.json.zst", "[\n1\n,2\n]\n"),
        ] {
            let path = folder.path().join(name);
            let mut writer = ElementWriter::create(&path).unwrap();
            writer.record(&1).unwrap();
            writer.record(&2).unwrap();
            writer.finish().unwrap();
            assert_eq!(jsonl::read_to_string(&path).unwrap(), expected);
        }
        let path = folder.path().join("empty.json");
        ElementWriter::create(&path).unwrap().finish().unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "[]\n");
    }
}
