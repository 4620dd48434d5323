//! JSON lines and text lines, streamed from plain, gzip and zstd files; atomic writers.
//!
//! Readers detect compression by a file's first bytes, writers by the ending of its name. `-` is standard
//! input or output. Text is UTF-8, with or without a byte order mark; lines end in LF or CRLF. JSON may have what Python's
//! `json` module adds to it (see [`parse()`]).

mod chunk;
mod input;
mod limits;
pub(crate) mod parse;
pub(crate) mod python;
mod reader;
mod writer;

use std::{io::Read, path::Path, sync::Arc};

use serde::de::DeserializeOwned;

pub use chunk::Chunk;
pub(crate) use input::Input;
pub use input::{InputFile, Position, is_stream, open_bytes};
pub use limits::{FREE, Limits};
pub(crate) use limits::{TooMuch, read_line};
pub use parse::{parse, parse_free, utf8};
pub use reader::{Reader, open};
pub use sporran_config::words::plain_json;
pub(crate) use writer::TEMPORARY;
pub use writer::{Writer, temporary_prefix, write, write_json};

use crate::{Error, Result};

pub(crate) const BUFFER: usize = 1 << 18;

/// Reads a whole (possibly compressed) file.
///
/// # Errors
/// [`Error::Io`], [`Error::Compressed`], [`Error::Expansion`], [`Error::Utf8`]; [`Error::Long`] for standard input or a device
/// without an end.
pub fn read_to_string(path: impl AsRef<Path>) -> Result<String> {
    Ok(read_whole(path.as_ref())?.1)
}

fn read_whole(path: &Path) -> Result<(Arc<InputFile>, String)> {
    let mut reader = open(path)?;
    let mut bytes = Vec::new();
    // A file on disk or unpacked from one ends; standard input and devices may not.
    let most = if reader.position().size() > 0 { u64::MAX } else { Limits::current().line };
    let read = reader.input.bytes.by_ref().take(most).read_to_end(&mut bytes);
    read.map_err(|source| reader.failure(source))?;
    if bytes.len() as u64 == most {
        let path = reader.path().to_owned();
        return Err(Error::Long { path, line: 1, limit: most });
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = &error.as_bytes()[..at];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() as u64 + 1;
        let start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let rest = error.as_bytes()[start..].split(|&byte| byte == b'\n').next().unwrap_or_default();
        let file = &reader.file;
        // The line has the wrong byte, so that the second case does not occur.
        let elsewhere = || Error::Utf8 { path: file.to_path_buf(), line, byte: at - start, latin: None };
        utf8(file, line, rest).err().unwrap_or_else(elsewhere)
    })?;
    Ok((reader.file.clone(), text))
}

/// Reads a whole (possibly compressed) file as one JSON value, as [`parse()`] reads a line.
///
/// # Errors
/// As [`read_to_string`], and [`Error::Record`] with line and field.
pub fn read_json<T: DeserializeOwned>(path: impl AsRef<Path>) -> Result<T> {
    let (file, text) = read_whole(path.as_ref())?;
    let (field, error) = match parse::located(&text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let Some(strict) = python::Strict::of(&text) else {
        return Err(Error::record(&file, error.line() as u64, field, parse::plain(&error)));
    };
    let value =
        strict.read().map_err(|wrong| Error::record(&file, wrong.line as u64, wrong.field, wrong.message))?;
    file.replaced(strict.halves);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;

    fn lines(count: usize) -> Vec<String> {
        (0..count).map(|at| format!(r#"{{"id":{at},"input":"{}"}}"#, "x".repeat(at % 97))).collect()
    }

    fn read(path: &Path) -> Result<Vec<Record>> {
        open(path)?.records().collect()
    }

    #[test]
    fn plain_gzip_and_zstd_files_hold_the_same_records() {
        let folder = tempfile::tempdir().unwrap();
        let expected = lines(1000);
        for name in ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"] {
            let path = folder.path().join("new").join(name);
            let mut writer = Writer::create(&path).unwrap();
            expected.iter().for_each(|line| writer.line(line.as_bytes()).unwrap());
            assert!(!path.exists(), "appears before it is finished");
            writer.finish().unwrap();
            let records = read(&path).unwrap();
            assert_eq!(records.len(), 1000);
            let again: Vec<String> =
                records.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
            assert_eq!(again, expected);
            let mut batched = Vec::new();
            open(&path)
                .unwrap()
                .batches::<Record>(|batch| {
                    batched.extend(batch);
                    Ok(())
                })
                .unwrap();
            assert_eq!(
                batched.iter().map(|(line, _)| *line).collect::<Vec<_>>(),
                (1..=1000).collect::<Vec<u64>>()
            );
        }
    }

    #[test]
    fn a_truncated_gzip_file_is_named_with_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl.gz");
        let mut writer = Writer::create(&path).unwrap();
        for at in 0..20_000u32 {
            writer.line(format!(r#"{{"id":"{:x}"}}"#, at.wrapping_mul(2_654_435_761)).as_bytes()).unwrap();
        }
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        match read(&path).unwrap_err() {
            Error::Compressed { line, .. } => assert!(line > 100 && line < 20_000, "{line}"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(open(&path).unwrap().batches::<Record>(|_| Ok(())), Err(Error::Compressed { .. })));
    }

    #[test]
    fn json_of_python_is_read_and_half_pairs_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let line = r#"{"id":1,"input":"a\ud83d \udc00","x":NaN,"y":[-Infinity]}"#;
        std::fs::write(&path, format!("{line}\n{{\"id\":2}}\n{line}\n")).unwrap();
        let records = read(&path).unwrap();
        assert_eq!(records[0].input.as_deref(), Some("a\u{FFFD} \u{FFFD}"));
        assert_eq!((records[2].extra["x"].clone(), records.len()), (serde_json::Value::Null, 3));
        let reader = open(&path).unwrap();
        let file = reader.file.clone();
        let mut seen = 0;
        reader
            .batches::<Record>(|batch| {
                seen += batch.len();
                Ok(())
            })
            .unwrap();
        assert_eq!((seen, file.halves()), (3, 4));
        std::fs::write(&path, format!("[\n{line},\n{{\"id\":NaN}}]")).unwrap();
        let message = read_json::<Vec<Record>>(&path).unwrap_err().to_string();
        assert!(message.contains("a.jsonl:3: field `[1].id`: "), "{message}");
        std::fs::write(&path, format!("[\n{line}]")).unwrap();
        assert_eq!(read_json::<Vec<Record>>(&path).unwrap()[0].id.number(), Some(1));
    }

    #[test]
    fn text_in_latin_1_is_told_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, b"{\"id\":1}\n{\"id\":2,\"input\":\"a caf\xe9 \x80 3\"}\n").unwrap();
        let expected =
            "a.jsonl:2: invalid UTF-8 at byte 22 of the line; in Windows-1252 (Latin-1) it is `caf\u{e9}`";
        let whole = read_to_string(&path).unwrap_err().to_string();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains(expected) && whole.contains(expected), "{message} {whole}");
        // Other text in UTF-8 says that a single byte is wrong.
        std::fs::write(&path, b"{\"id\":1,\"input\":\"caf\xc3\xa9 \xe9\"}").unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.ends_with("invalid UTF-8 at byte 23 of the line"), "{message}");
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let cases: [(&[u8], &str); 5] = [
            (
                b"{\"id\":1}\n\n{\"id\":2,\"output\":[{\"provenance\":[{\"wikipedia_id\":1.5}]}]}\n",
                "field `output[0].provenance[0].wikipedia_id`",
            ),
            (b"{\"id\":1}\n\n{\"id\":2\n", ":3: not JSON: the text ends inside an object"),
            (b"{\"id\":1}\n\n[]\n", ":3: expected an object, found a list"),
            (b"{\"id\":1}\n\n{\"input\":\"q\"}\n", "missing field `id`"),
            (b"{\"id\":1}\n\n{\"id\":\"\xff\"}\n", "invalid UTF-8 at byte 7"),
        ];
        for (bytes, expected) in cases {
            std::fs::write(&path, bytes).unwrap();
            let message = read(&path).unwrap_err().to_string();
            assert!(message.contains("a.jsonl:3: ") && message.contains(expected), "{message}");
        }
    }
}
