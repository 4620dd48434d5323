//! A line's bytes as text and as a record.

use std::path::Path;

use serde::de::DeserializeOwned;
use sporran_config::words::{Form, plain as plain_words};

use super::{InputFile, python::Strict};
use crate::{Error, Result};

/// A line's bytes as text.
///
/// # Errors
/// [`Error::Utf8`] with the first wrong byte.
pub fn utf8<'a>(path: &Path, line: u64, bytes: &'a [u8]) -> Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|error| Error::utf8(path, line, (0, bytes), error))
}

/// A line as a record: JSON, with what Python's `json` module adds to it. There a number without a value (`NaN`,
/// `Infinity`) is null for a field that may be missing or is not read. Half a surrogate pair is U+FFFD; the file counts
/// them.
///
/// # Errors
/// [`Error::Utf8`], or [`Error::Record`] with the field's path.
pub fn parse<T: DeserializeOwned>(file: &InputFile, line: u64, bytes: &[u8]) -> Result<T> {
    // The fast path first; only a failure pays for tracking the field's path.
    serde_json::from_slice(bytes).or_else(|_| {
        let text = utf8(file, line, bytes)?;
        if let Some(strict) = Strict::of(text) {
            let value = strict.read().map_err(|wrong| {
                let column = wrong.column.map(|column| format!(" (column {column})")).unwrap_or_default();
                Error::record(file, line, wrong.field, wrong.message + &column)
            })?;
            file.replaced(strict.halves);
            return Ok(value);
        }
        located(text).map_err(|(field, error)| Error::record(file, line, field, plain(&error)))
    })
}

/// A text without a schema as a value: JSON, with what Python's `json` module adds to it. Numbers without a value are null, half
/// a surrogate pair is U+FFFD.
///
/// # Errors
/// That of the strict JSON, with its line and column.
pub fn parse_free<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    serde_json::from_str(text).or_else(|error| match Strict::of(text) {
        Some(strict) => serde_json::from_str(&strict.text),
        None => Err(error),
    })
}

/// A text as one JSON value. An error has the path of its field.
pub(crate) fn located<T: DeserializeOwned>(text: &str) -> Result<T, (String, serde_json::Error)> {
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| (field(error.path()), error.into_inner()))?;
    json.end().map_err(|error| (".".to_owned(), error))?;
    Ok(value)
}

/// The path of a field; if the JSON ends inside an object, that of the object.
pub(crate) fn field(path: &serde_path_to_error::Path) -> String {
    let path = path.to_string();
    let path = path.trim_end_matches('?').trim_end_matches('.');
    if path.is_empty() { ".".to_owned() } else { path.to_owned() }
}

/// serde_json's message without its place.
pub(crate) fn bare(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rfind(" at line ").map_or(text.as_str(), |at| &text[..at]).to_owned()
}

/// serde_json's message in plain words without its place.
pub(crate) fn words(error: &serde_json::Error) -> String {
    let words = plain_words(&bare(error), Form::Json);
    if error.is_data() { words } else { format!("not JSON: {words}") }
}

/// serde_json's message in plain words with the column; the caller knows the line.
pub(crate) fn plain(error: &serde_json::Error) -> String {
    // A wrong value at the start of the text has column 0.
    match error.column() {
        0 => words(error),
        column => format!("{} (column {column})", words(error)),
    }
}
