//! A line's bytes as text and as a record.

use std::path::Path;

use crate::{Error, Result};

/// A line's bytes as text.
///
/// # Errors
/// [`Error::Utf8`] with the first wrong byte.
pub fn utf8<'a>(path: &Path, line: u64, bytes: &'a [u8]) -> Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|error| Error::Utf8 {
        path: path.to_owned(),
        line,
        byte: error.valid_up_to(),
    })
}

/// A line as a record.
///
/// # Errors
/// [`Error::Utf8`], or [`Error::Record`] with the field's path.
pub fn parse<'a, T: serde::Deserialize<'a>>(path: &Path, line: u64, bytes: &'a [u8]) -> Result<T> {
    // The fast path first; only a failure pays for tracking the field's path.
    serde_json::from_slice(bytes).or_else(|_| {
        let text = utf8(path, line, bytes)?;
        let mut json = serde_json::Deserializer::from_str(text);
        let value = serde_path_to_error::deserialize(&mut json)
            .map_err(|error| Error::record(path, line, field(error.path()), plain(error.inner())))?;
        json.end().map_err(|error| Error::record(path, line, ".", plain(&error)))?;
        Ok(value)
    })
}

/// The path of a field; if the JSON ends inside an object, that of the object.
pub(crate) fn field(path: &serde_path_to_error::Path) -> String {
    let path = path.to_string();
    let path = path.trim_end_matches('?').trim_end_matches('.');
    if path.is_empty() { ".".to_owned() } else { path.to_owned() }
}

/// serde_json's message with the column alone: the line that it counts is always 1 here.
pub(crate) fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line 1 column ") {
        Some(at) => format!("{} (column {})", &text[..at], error.column()),
        None => text,
    }
}
