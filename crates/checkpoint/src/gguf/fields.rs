//! The fields of a GGUF file's head, read by their types.

use std::path::Path;

use candle_core::quantized::gguf_file::{Content, Value};

use crate::error::{Error, Result};

/// A value as errors show it: numbers and truth values themselves, what may be long by its type.
fn plain(value: &Value) -> String {
    match value {
        Value::U8(number) => number.to_string(),
        Value::I8(number) => number.to_string(),
        Value::U16(number) => number.to_string(),
        Value::I16(number) => number.to_string(),
        Value::U32(number) => number.to_string(),
        Value::I32(number) => number.to_string(),
        Value::U64(number) => number.to_string(),
        Value::I64(number) => number.to_string(),
        Value::F32(number) => number.to_string(),
        Value::F64(number) => number.to_string(),
        Value::Bool(is) => is.to_string(),
        Value::String(_) => "a text".into(),
        Value::Array(_) => "a list".into(),
    }
}

/// The fields of a file's head.
#[derive(Debug, Clone, Copy)]
pub struct GgufFields<'a> {
    path: &'a Path,
    content: &'a Content,
}

impl<'a> GgufFields<'a> {
    pub(super) fn new(path: &'a Path, content: &'a Content) -> Self {
        Self { path, content }
    }

    /// The error for a field that holds something else.
    #[must_use]
    pub fn wrong(&self, field: &str, expected: &str, found: impl Into<String>) -> Error {
        let path = self.path.into();
        Error::Config { path, field: field.into(), expected: expected.into(), found: found.into() }
    }

    /// A field as it is stored.
    #[must_use]
    pub fn optional(&self, field: &str) -> Option<&'a Value> {
        self.content.metadata.get(field)
    }

    /// A text.
    ///
    /// # Errors
    /// [`Error::Config`] where it is missing or of another type.
    pub fn text(&self, field: &str) -> Result<&'a str> {
        match self.optional(field) {
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(self.wrong(field, "a text", plain(other))),
            None => Err(self.wrong(field, "a text", "none")),
        }
    }

    /// A size; none where there is no such field.
    ///
    /// # Errors
    /// [`Error::Config`] where it is of another type.
    pub fn size_or_none(&self, field: &str) -> Result<Option<usize>> {
        let Some(value) = self.optional(field) else { return Ok(None) };
        // An invalid file gets an error without more detail.
        let size =
            value.to_u64().ok().or_else(|| value.to_i32().ok().and_then(|value| u64::try_from(value).ok()));
        let size = size.and_then(|size| usize::try_from(size).ok());
        size.map(Some).ok_or_else(|| self.wrong(field, "a size", plain(value)))
    }

    /// A size.
    ///
    /// # Errors
    /// [`Error::Config`] where it is missing or of another type.
    pub fn size(&self, field: &str) -> Result<usize> {
        self.size_or_none(field)?.ok_or_else(|| self.wrong(field, "a size", "none"))
    }

    /// The id of a token of the vocabulary; none for a number without a token, such as -1.
    ///
    /// # Errors
    /// [`Error::Config`] where it is of another type.
    pub fn token(&self, field: &str) -> Result<Option<u32>> {
        let Some(value) = self.optional(field) else { return Ok(None) };
        let id = match value {
            Value::I8(id) => i64::from(*id),
            Value::I16(id) => i64::from(*id),
            Value::I32(id) => i64::from(*id),
            Value::I64(id) => *id,
            _ => self.size_or_none(field)?.and_then(|id| i64::try_from(id).ok()).unwrap_or(-1),
        };
        let count = self.list("tokenizer.ggml.tokens")?.len();
        Ok(u32::try_from(id).ok().filter(|id| (*id as usize) < count))
    }

    /// A number; none where there is no such field.
    ///
    /// # Errors
    /// [`Error::Config`] where it is of another type.
    pub fn number(&self, field: &str) -> Result<Option<f64>> {
        let Some(value) = self.optional(field) else { return Ok(None) };
        let number = value.to_f32().map(f64::from).or_else(|_| value.to_f64());
        number.map(Some).map_err(|_| self.wrong(field, "a number", plain(value)))
    }

    /// A list.
    ///
    /// # Errors
    /// [`Error::Config`] where it is missing or of another type.
    pub fn list(&self, field: &str) -> Result<&'a [Value]> {
        match self.optional(field) {
            Some(Value::Array(values)) => Ok(values),
            Some(other) => Err(self.wrong(field, "a list", plain(other))),
            None => Err(self.wrong(field, "a list", "none")),
        }
    }

    /// A list of texts.
    ///
    /// # Errors
    /// [`Error::Config`] where it is missing or holds something else.
    pub fn texts(&self, field: &str) -> Result<Vec<&'a str>> {
        let mut texts = Vec::new();
        for value in self.list(field)? {
            match value {
                Value::String(text) => texts.push(text.as_str()),
                other => {
                    return Err(self.wrong(field, "a list of texts", plain(other)));
                }
            }
        }
        Ok(texts)
    }
}
