//! JSON objects: one a line, or a list of them in one file.

use std::io::BufRead;

use serde_json::{Map, Value};
use sporran_kilt::jsonl::plain_json;

use crate::{
    encoding,
    record::Row,
    table::{Item, read_line},
};

/// JSON lines while they are read.
pub(crate) struct JsonLines<R> {
    input: R,
    line: u64,
    number: u64,
    buffer: Vec<u8>,
    /// Whether a line was not UTF-8.
    pub(crate) guessed: bool,
}

impl<R: BufRead> JsonLines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, line: 0, number: 0, buffer: Vec::new(), guessed: false }
    }

    /// The next object; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Item> {
        loop {
            self.buffer.clear();
            self.line += 1;
            match read_line(&mut self.input, &mut self.buffer) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(message) => return Some(Item::End((self.line, message))),
            }
            let bytes = self.buffer.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.buffer).trim_ascii();
            if bytes.is_empty() {
                continue;
            }
            self.number += 1;
            let text = encoding::line(bytes, &mut self.guessed);
            return Some(match serde_json::from_str::<Map<String, Value>>(&text) {
                Ok(fields) => Item::Row(Row { number: self.number, line: self.line, fields }),
                Err(error) => Item::Fault((
                    self.line,
                    format!("expected a JSON object: {}", plain_json(&error.to_string())),
                )),
            });
        }
    }
}

/// The objects of a JSON file that is a list of objects, or one object. Their lines are 1, because a parsed value has none.
///
/// # Errors
/// A message for other JSON.
pub(crate) fn list(text: &str) -> Result<Vec<Row>, String> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| format!("expected JSON: {}", plain_json(&error.to_string())))?;
    let items = match value {
        Value::Array(items) => items,
        object @ Value::Object(_) => vec![object],
        _ => return Err("expected a JSON object or a list of objects, found another value".to_owned()),
    };
    let row = |(at, item)| match item {
        Value::Object(fields) => Ok(Row { number: at as u64 + 1, line: 1, fields }),
        _ => Err(format!("expected a list of JSON objects, found another value as item {}", at + 1)),
    };
    items.into_iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_lines_are_told_and_the_rest_is_read() {
        let mut lines = JsonLines::new(&b"\xef\xbb\xbf{\"a\":1}\n\n[2]\n{\"b\":\n{\"a\":\"caf\xe9\"}"[..]);
        let mut found = Vec::new();
        while let Some(item) = lines.next() {
            found.push(match item {
                Item::Row(row) => format!("{} {}", row.line, serde_json::to_string(&row.fields).unwrap()),
                Item::Fault((line, _)) | Item::End((line, _)) => format!("{line}!"),
            });
        }
        assert_eq!(
            (found, lines.guessed),
            (vec!["1 {\"a\":1}".into(), "3!".into(), "4!".into(), "5 {\"a\":\"café\"}".to_owned()], true)
        );
    }

    #[test]
    fn a_list_of_objects_is_read_as_a_whole() {
        assert_eq!(list("[{\"a\": 1},\n {\"b\": 2}]").unwrap().len(), 2);
        assert_eq!(list("{\"a\": 1}").unwrap().len(), 1);
        assert!(list("[1]").is_err() && list("3").is_err() && list("[").is_err());
    }
}
