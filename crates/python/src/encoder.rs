//! Texts as vectors.

use std::path::{Path, PathBuf};

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use sporran_retriever::dense::{BiEncoder, BiEncoderOptions, Encoder as _, Prompt};

use crate::{
    arguments::{Texts, count, optional_count, options},
    calls::{compute, portions},
    error::{InputError, Result, argument},
};

/// Texts that are encoded between two looks for Ctrl-C.
const PORTION: usize = 256;

/// A bi-encoder.
#[pyclass(frozen, module = "sporran")]
pub(crate) struct Encoder {
    encoder: BiEncoder,
    arguments: String,
}

#[pymethods]
impl Encoder {
    #[new]
    #[pyo3(signature = (model, *, pooling = None, prompt = None, prompt_name = None, dimensions = None, max_tokens = None,
                        precision = "f32", device = "cpu", batch_tokens = 4096))]
    #[allow(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn new(
        py: Python<'_>,
        model: PathBuf,
        pooling: Option<&str>,
        prompt: Option<String>,
        prompt_name: Option<String>,
        dimensions: Option<i128>,
        max_tokens: Option<i128>,
        precision: &str,
        device: &str,
        batch_tokens: i128,
    ) -> Result<Self> {
        let dimensions = optional_count("dimensions", dimensions, 1)?;
        let max_tokens = optional_count("max_tokens", max_tokens, 1)?;
        let batch_tokens = count("batch_tokens", batch_tokens, 1)?;
        let arguments = serde_json::json!({
            "model": model.to_string_lossy(), "pooling": pooling, "prompt": prompt, "prompt_name": prompt_name,
            "dimensions": dimensions, "max_tokens": max_tokens, "precision": precision, "device": device,
            "batch_tokens": batch_tokens,
        });
        let pooling = pooling.map(|name| options(name.into())).transpose()?;
        let read = BiEncoderOptions {
            folder: PathBuf::new(),
            pooling,
            dimensions,
            prompt: match (prompt_name, prompt) {
                (Some(_), Some(_)) => return Err(argument("prompt", "a prompt or its name", "both")),
                (Some(name), None) => Prompt::Named(name),
                (None, Some(text)) => Prompt::Text(text),
                (None, None) => Prompt::Default,
            },
            precision: parsed("precision", precision)?,
            device: parsed("device", device)?,
            max_tokens,
            batch_tokens,
        };
        let folder = model_folder(py, &model)?;
        let encoder = compute(py, || BiEncoder::load(&BiEncoderOptions { folder, ..read }))?;
        Ok(Self { encoder, arguments: arguments.to_string() })
    }

    /// The length of a vector.
    #[getter]
    fn dimensions(&self) -> usize {
        self.encoder.dim()
    }

    /// The vectors of texts: an array of float32, (texts, values), or (values,) for one text.
    fn encode<'py>(&self, py: Python<'py>, texts: &Bound<'_, PyAny>) -> Result<Bound<'py, PyAny>> {
        let texts = Texts::of("texts", texts)?;
        let width = self.encoder.dim();
        let slices = texts.slices();
        let values: Vec<f32> = portions(py, &slices, PORTION, |texts| {
            self.encoder.encode(texts).map(|vectors| vectors.values().to_vec())
        })?;
        let array = PyArray1::from_vec(py, values);
        if texts.is_one {
            return Ok(array.into_any());
        }
        let matrix: Bound<'py, PyArray2<f32>> = array.reshape([slices.len(), width])?;
        Ok(matrix.into_any())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, (&'static str, String))> {
        Ok((py.import("sporran")?.getattr("_again")?, ("Encoder", self.arguments.clone())))
    }
}

/// The folder of a model: a path, the name of an imported model, or `hf:ID[@REV]`.
pub(crate) fn model_folder(py: Python<'_>, model: &Path) -> Result<PathBuf> {
    py.detach(|| sporran_cli::model_folder(model)).map_err(InputError::new_err)
}

/// Reads an argument that is a name.
pub(crate) fn parsed<T: std::str::FromStr>(name: &str, value: &str) -> Result<T>
where
    T::Err: std::fmt::Display,
{
    value.parse().map_err(|error: T::Err| argument(name, "a known name", format!("{value:?}: {error}")))
}
