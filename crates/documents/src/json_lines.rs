//! JSON objects: one a line, or a list of them in one file.

use std::io::BufRead;

use serde_json::{Map, Value};
use sporran_kilt::jsonl::{self, plain_json};

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
            return Some(match jsonl::parse_free::<Map<String, Value>>(&text) {
                Ok(fields) => {
                    Item::Row(Row { number: self.number, line: Some(self.line), has_types: true, fields })
                }
                Err(error) => Item::Fault((
                    self.line,
                    format!("expected a JSON object: {}", plain_json(&error.to_string())),
                )),
            });
        }
    }
}

/// The objects of a JSON file that is a list of objects, or one object, with the lines on which they start. Another item of a
/// list is a fault.
///
/// # Errors
/// A message for other JSON, and for a list without an object.
pub(crate) fn list(text: &str) -> Result<Vec<Item>, String> {
    let value: Value = jsonl::parse_free(text)
        .map_err(|error| format!("expected JSON: {}", plain_json(&error.to_string())))?;
    let items = match value {
        Value::Array(items) => items,
        object @ Value::Object(_) => vec![object],
        _ => return Err("expected a JSON object or a list of objects, found another value".to_owned()),
    };
    if !items.is_empty() && !items.iter().any(Value::is_object) {
        return Err("expected a list of JSON objects, found a list of other values".to_owned());
    }
    let lines = starts(text);
    let row = |(at, item)| {
        let (number, line) = (at as u64 + 1, lines.get(at).copied().unwrap_or(1));
        match item {
            Value::Object(fields) => Item::Row(Row { number, line: Some(line), has_types: true, fields }),
            _ => Item::Fault((line, format!("expected a JSON object, found another value as item {number}"))),
        }
    };
    Ok(items.into_iter().enumerate().map(row).collect())
}

/// The lines on which the items of a list start, or that of a single object. The text is valid JSON.
fn starts(text: &str) -> Vec<u64> {
    let (mut line, mut depth, mut lines) = (1, 0, Vec::new());
    let (mut in_string, mut is_escaped) = (false, false);
    let outermost = usize::from(text.trim_start().starts_with('['));
    // Whether the next value is an item.
    let mut begins = outermost == 0;
    for byte in text.bytes() {
        if begins && depth == outermost && !byte.is_ascii_whitespace() && byte != b']' {
            lines.push(line);
            begins = false;
        }
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b'\n' => line += 1,
            _ if in_string => {}
            b'{' | b'[' => {
                begins = depth == 0 && outermost == 1;
                depth += 1;
            }
            b',' if depth == outermost => begins = true,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_lines_are_told_and_the_rest_is_read() {
        let text =
            b"\xef\xbb\xbf{\"a\":1}\n\n[2]\n{\"b\":\n{\"a\":\"caf\xe9\"}\n{\"a\":NaN,\"b\":\"\\ud83d\"}";
        let mut lines = JsonLines::new(&text[..]);
        let mut found = Vec::new();
        while let Some(item) = lines.next() {
            found.push(match item {
                Item::Row(row) => {
                    format!("{} {}", row.shown_number(), serde_json::to_string(&row.fields).unwrap())
                }
                Item::Fault((line, _)) | Item::End((line, _)) => format!("{line}!"),
            });
        }
        assert_eq!(
            (found, lines.guessed),
            (
                vec![
                    "1 {\"a\":1}".into(),
                    "3!".into(),
                    "4!".into(),
                    "5 {\"a\":\"café\"}".to_owned(),
                    "6 {\"a\":null,\"b\":\"\u{fffd}\"}".into()
                ],
                true
            )
        );
    }

    #[test]
    fn a_list_of_objects_is_read_as_a_whole() {
        let line = |item: &Item| match item {
            Item::Row(row) => row.shown_number(),
            Item::Fault((line, _)) | Item::End((line, _)) => *line,
        };
        let lines = |text: &str| list(text).unwrap().iter().map(line).collect::<Vec<_>>();
        assert_eq!(lines("[{\"a\": 1},\n {\"b\": 2}]"), [1, 2]);
        assert_eq!(lines("\n[\n {\"a\": [{}, \"\\\"]{\\\\\"]},\n\n {\n\"b\": {}}\n, {}]"), [3, 5, 7]);
        let items = list("[{\"a\": NaN},\n 3,\n\n \"x, [\", [1,\n 2],\n {}]").unwrap();
        assert!(matches!(&items[0], Item::Row(row) if row.fields["a"].is_null()));
        assert!(matches!(&items[1], Item::Fault((2, message)) if message.ends_with("as item 2")));
        assert!(
            matches!((&items[3], &items[4]), (Item::Fault((4, _)), Item::Row(row)) if row.line == Some(6))
        );
        assert_eq!((lines("\n{\"a\": {\n}}"), lines("[]")), (vec![2], vec![]));
        assert!(list("[1]").is_err() && list("3").is_err() && list("[").is_err());
    }
}
