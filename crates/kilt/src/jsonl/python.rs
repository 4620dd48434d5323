//! JSON as Python's `json` module reads and writes it, where strict JSON has nothing of the kind.
//!
//! Python writes `NaN`, `Infinity` and `-Infinity`, and the escape of a half surrogate pair, such as `\ud83d` without its
//! second half. A number without a value reads as null where a field may lack one or is not read, and is an error in a
//! field of numbers. Half a pair reads as U+FFFD.

use serde::de::DeserializeOwned;
use sporran_config::words::{Form, plain};

use super::parse;

/// The words that stand for numbers without a value.
const WORDS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// A text in strict JSON.
pub(crate) struct Strict {
    /// With null for each word, and U+FFFD for each half pair.
    pub(crate) text: String,
    /// The same with the words in quotes, which no field of numbers takes; without words none.
    quoted: Option<String>,
    /// The number of half pairs.
    pub(crate) halves: u64,
}

/// A value that a text does not have.
pub(crate) struct Wrong {
    /// The path of the field; `.` is the value itself.
    pub(crate) field: String,
    /// What is wrong, without its place.
    pub(crate) message: String,
    /// The line, from 1. A changed text has the lines of the original.
    pub(crate) line: usize,
    /// The column, from 1; none if the text was changed.
    pub(crate) column: Option<usize>,
}

impl Strict {
    /// The text in strict JSON; none for a text without words and half pairs.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let mut found = Self { text: String::new(), quoted: None, halves: 0 };
        // Everything before `kept` is in `found`.
        let (mut at, mut kept, mut in_string) = (0, 0, false);
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'"' => (in_string, at) = (!in_string, at + 1),
                b'\\' if in_string => match escape(&bytes[at..]) {
                    Escape::Half => {
                        found.push(&text[kept..at]);
                        found.push("\\ufffd");
                        found.halves += 1;
                        at += 6;
                        kept = at;
                    }
                    Escape::Of(length) => at += length,
                },
                b'N' | b'I' | b'-' if !in_string => {
                    match WORDS.into_iter().find(|word| bytes[at..].starts_with(word.as_bytes())) {
                        None => at += 1,
                        Some(word) => {
                            found.push(&text[kept..at]);
                            let quoted = found.quoted.get_or_insert_with(|| found.text.clone());
                            quoted.push_str(&format!("\"{word}\""));
                            found.text.push_str("null");
                            at += word.len();
                            kept = at;
                        }
                    }
                }
                _ => at += 1,
            }
        }
        found.push(text.get(kept..)?);
        (found.halves > 0 || found.quoted.is_some()).then_some(found)
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        if let Some(quoted) = &mut self.quoted {
            quoted.push_str(text);
        }
    }

    /// The value of the text.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Wrong> {
        let value = parse::located::<T>(&self.text);
        let Some(quoted) = &self.quoted else { return value.map_err(Wrong::of) };
        // A field that takes no quoted word but null is a number that may be missing. This one is there.
        if let Err((field, error)) = parse::located::<T>(quoted) {
            let message = parse::bare(&error);
            for word in WORDS {
                let in_quotes = format!("string \"{word}\"");
                if message.contains(&in_quotes) {
                    let message = plain(&message.replace(&in_quotes, word), Form::Json);
                    return Err(Wrong { field, message, line: error.line(), column: None });
                }
            }
        }
        value.map_err(|wrong| Wrong { column: None, ..Wrong::of(wrong) })
    }
}

impl Wrong {
    /// The value that serde_json found wrong.
    pub(crate) fn of((field, error): (String, serde_json::Error)) -> Self {
        Self {
            field,
            message: parse::words(&error),
            line: error.line(),
            column: Some(error.column()).filter(|column| *column > 0),
        }
    }
}

enum Escape {
    /// Half a surrogate pair: six bytes.
    Half,
    /// Anything else, of this many bytes.
    Of(usize),
}

/// The escape at the start of `bytes`, a backslash.
fn escape(bytes: &[u8]) -> Escape {
    let unit = |bytes: &[u8]| -> Option<u16> {
        let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
        let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    match unit(bytes) {
        Some(0xD800..=0xDBFF) if matches!(unit(&bytes[6..]), Some(0xDC00..=0xDFFF)) => Escape::Of(12),
        Some(0xD800..=0xDFFF) => Escape::Half,
        Some(_) => Escape::Of(6),
        None => Escape::Of(2),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn half_pairs_are_replaced_and_whole_pairs_stay() {
        let read = |text: &str| Strict::of(text).map(|strict| (strict.read::<Value>().ok(), strict.halves));
        let replaced = |text: &str, halves| Some((Some(json!(text)), halves));
        assert_eq!(read(r#""a\ud83db""#), replaced("a\u{FFFD}b", 1));
        assert_eq!(read(r#""\ude00""#), replaced("\u{FFFD}", 1));
        assert_eq!(read(r#""\ud83d\ud83d\ude00 \ude00\ud83d""#), replaced("\u{FFFD}😀 \u{FFFD}\u{FFFD}", 3));
        assert_eq!(read(r#""\uD83D\n""#), replaced("\u{FFFD}\n", 1));
        // A whole pair, and a backslash before a `u`.
        assert_eq!(read(r#""\ud83d\ude00 \\ud83d""#), None);
        // A string that ends after half a pair.
        assert_eq!(read(r#"["\ud83d", "\\"]"#), Some((Some(json!(["\u{FFFD}", "\\"])), 1)));
    }

    #[test]
    fn numbers_without_a_value_are_null_where_they_may_be() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Row {
            id: u32,
            title: Option<String>,
            score: Option<f32>,
            a: Option<Value>,
        }
        let read = |text: &str| Strict::of(text).unwrap().read::<Row>();
        let row = read(r#"{"id": 1, "title": NaN, "a": [NaN, "NaN -Infinity", -Infinity], "b": Infinity}"#);
        let a = Some(json!([null, "NaN -Infinity", null]));
        assert_eq!(row.ok(), Some(Row { id: 1, title: None, score: None, a }));
        for (text, field, message) in [
            (r#"{"id": NaN}"#, "id", "expected a whole number of at least 0, found NaN"),
            (r#"{"id": 1, "score": -Infinity}"#, "score", "expected a number, found -Infinity"),
            (r#"{"id": 1, "title": NaN, "score": "x"}"#, "score", "string \"x\""),
        ] {
            let wrong = read(text).unwrap_err();
            assert!(
                wrong.message.contains(message) && wrong.field == field,
                "{} {}",
                wrong.field,
                wrong.message
            );
        }
        assert!(Strict::of(r#"{"id": -1, "title": "NaN"}"#).is_none());
    }
}
