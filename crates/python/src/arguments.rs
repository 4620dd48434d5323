//! Keyword arguments as the options of a config: `batch_tokens=64` is the key `batch-tokens`.

use numpy::{PyArray2, PyReadonlyArray2, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::{prelude::*, types::PyDict};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Result, argument};

/// The keyword arguments as a table of a config.
pub(crate) fn table(arguments: Option<&Bound<'_, PyDict>>) -> Result<Value> {
    let Some(arguments) = arguments else { return Ok(Value::Object(serde_json::Map::new())) };
    let dumped = arguments.py().import("json")?.call_method1("dumps", (arguments,));
    let text: String =
        dumped.map_err(|error| argument("keyword arguments", "plain values", error))?.extract()?;
    let value: Value =
        serde_json::from_str(&text).map_err(|error| argument("keyword arguments", "plain values", error))?;
    Ok(hyphens(value))
}

/// The keys of Python in the spelling of a config.
fn hyphens(value: Value) -> Value {
    match value {
        Value::Object(entries) => {
            entries.into_iter().map(|(key, value)| (key.replace('_', "-"), hyphens(value))).collect()
        }
        other => other,
    }
}

/// The options that keyword arguments describe.
pub(crate) fn options<T: DeserializeOwned>(arguments: Value) -> Result<T> {
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let name = error.path().to_string().replace('-', "_");
        let name = if name == "." { "keyword arguments" } else { &name };
        argument(name, "an option of this kind", error.inner())
    })
}

/// A whole number of at least `least`. Arguments are read as `i128`, because a conversion to `usize` raises `OverflowError`.
pub(crate) fn count(name: &str, value: i128, least: usize) -> Result<usize> {
    let count = usize::try_from(value).ok().filter(|count| *count >= least);
    count.ok_or_else(|| argument(name, &format!("a whole number from {least} to {}", usize::MAX), value))
}

/// As [`count`], for an argument that may be absent.
pub(crate) fn optional_count(name: &str, value: Option<i128>, least: usize) -> Result<Option<usize>> {
    value.map(|value| count(name, value, least)).transpose()
}

/// A text, or a list of texts.
pub(crate) struct Texts {
    /// The texts.
    pub(crate) texts: Vec<String>,
    /// Whether it was one text.
    pub(crate) is_one: bool,
}

impl Texts {
    /// Reads an argument.
    pub(crate) fn of(name: &str, value: &Bound<'_, PyAny>) -> Result<Self> {
        if let Ok(text) = value.extract::<String>() {
            return Ok(Self { texts: vec![text], is_one: true });
        }
        let mut texts = Vec::new();
        let items = value.try_iter().map_err(|_| kind(name, "a text or a list of texts", value))?;
        for (at, item) in items.enumerate() {
            let item = item?;
            let text = item.extract().map_err(|_| kind(&format!("{name}[{at}]"), "a text", &item))?;
            texts.push(text);
        }
        Ok(Self { texts, is_one: false })
    }

    /// The texts as slices.
    pub(crate) fn slices(&self) -> Vec<&str> {
        self.texts.iter().map(String::as_str).collect()
    }
}

/// The exception for an argument of a wrong type.
fn kind(name: &str, expected: &str, found: &Bound<'_, PyAny>) -> PyErr {
    let found = found.get_type().name().map_or_else(|_| "another type".to_owned(), |name| name.to_string());
    argument(name, expected, format!("a value of type {found}"))
}

/// The rows of a matrix of f32: (n, d). A C-contiguous array at an address of f32 is borrowed, and any other is copied. Other types
/// of values, other shapes and values that are not finite are errors.
pub(crate) struct Matrix<'py> {
    /// Aligned and C-contiguous.
    array: PyReadonlyArray2<'py, f32>,
    /// The number of rows.
    pub(crate) rows: usize,
    /// The length of a row.
    pub(crate) width: usize,
}

impl<'py> Matrix<'py> {
    /// Reads an argument.
    pub(crate) fn of(name: &str, value: &Bound<'py, PyAny>) -> Result<Self> {
        let shape = |found: &dyn std::fmt::Display| {
            argument(name, "an array of float32 with the shape (vectors, values)", found)
        };
        let array = value.cast::<PyUntypedArray>().map_err(|_| kind(name, "an array of float32", value))?;
        let other = || {
            let dtype = array.dtype();
            shape(&format!("{dtype} with the shape {:?}", array.shape()))
        };
        // The type and the shape are checked before a copy.
        value.cast::<PyArray2<f32>>().map_err(|_| other())?;
        let plain = if array.is_aligned() && array.is_c_contiguous() {
            value.clone()
        } else {
            value.call_method0("copy")?
        };
        let array: PyReadonlyArray2<'py, f32> = plain.extract().map_err(|_| other())?;
        let &[rows, width] = array.shape() else { return Err(other()) };
        if rows == 0 || width == 0 {
            return Err(shape(&format!("the shape ({rows}, {width})")));
        }
        let values = array.as_slice().map_err(|_| other())?;
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let found = format!("{} in row {}, column {}", values[at], at / width, at % width);
            return Err(argument(name, "finite values", found));
        }
        Ok(Self { array, rows, width })
    }

    /// All values, row by row.
    pub(crate) fn values(&self) -> &[f32] {
        // `of` has checked that the array has a slice.
        self.array.as_slice().unwrap_or_default()
    }
}
