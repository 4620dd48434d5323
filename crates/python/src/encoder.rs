//! Texts as vectors.

use std::path::{Path, PathBuf};

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use sporran_checkpoint::Role;
use sporran_pipeline::Error;
use sporran_retriever::dense::{BiEncoder, BiEncoderOptions, Encoder as _, Prompt};

use crate::{
    arguments::{Texts, count, optional_count, options},
    calls::{compute, portions},
    error::{InputError, Result, argument},
};

/// A bi-encoder.
#[pyclass(frozen, module = "sporran")]
pub(crate) struct Encoder {
    encoder: BiEncoder,
    /// The same with the prompts for queries and for passages.
    queries: BiEncoder,
    documents: BiEncoder,
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
            prompt: prompt_of(prompt, prompt_name)?,
            precision: parsed("precision", precision)?,
            device: parsed("device", device)?,
            max_tokens,
            batch_tokens,
        };
        let folder = encoder_folder(py, &model)?;
        let (encoder, queries, documents) = compute(py, || {
            let options = BiEncoderOptions { folder, ..read };
            let encoder = BiEncoder::load(&options)?;
            // A prompt of the caller is that of all texts.
            let for_role = |role: Role| match options.prompt {
                Prompt::Default => encoder.prompted(&Prompt::Role(role)),
                _ => Ok(encoder.clone()),
            };
            let (queries, documents) = (for_role(Role::Query)?, for_role(Role::Passage)?);
            Ok::<_, Error>((encoder, queries, documents))
        })?;
        Ok(Self { encoder, queries, documents, arguments: arguments.to_string() })
    }

    /// The length of a vector.
    #[getter]
    fn dimensions(&self) -> usize {
        self.encoder.dim()
    }

    /// The vectors of texts: an array of float32, (texts, values), or (values,) for one text. `batch_size` is the number of texts
    /// that are encoded together.
    #[pyo3(signature = (texts, *, batch_size = 256, prompt = None, prompt_name = None))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'_, PyAny>,
        batch_size: i128,
        prompt: Option<String>,
        prompt_name: Option<String>,
    ) -> Result<Bound<'py, PyAny>> {
        vectors(py, &self.encoder, texts, batch_size, &prompt_of(prompt, prompt_name)?)
    }

    /// As `encode`, with the folder's prompt for queries.
    #[pyo3(signature = (texts, *, batch_size = 256, prompt = None, prompt_name = None))]
    fn encode_query<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'_, PyAny>,
        batch_size: i128,
        prompt: Option<String>,
        prompt_name: Option<String>,
    ) -> Result<Bound<'py, PyAny>> {
        vectors(py, &self.queries, texts, batch_size, &prompt_of(prompt, prompt_name)?)
    }

    /// As `encode`, with the folder's prompt for documents.
    #[pyo3(signature = (texts, *, batch_size = 256, prompt = None, prompt_name = None))]
    fn encode_document<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'_, PyAny>,
        batch_size: i128,
        prompt: Option<String>,
        prompt_name: Option<String>,
    ) -> Result<Bound<'py, PyAny>> {
        vectors(py, &self.documents, texts, batch_size, &prompt_of(prompt, prompt_name)?)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, (&'static str, String))> {
        Ok((py.import("sporran")?.getattr("_again")?, ("Encoder", self.arguments.clone())))
    }
}

/// The vectors of texts by an encoder, with another prompt unless it is the default.
fn vectors<'py>(
    py: Python<'py>,
    encoder: &BiEncoder,
    texts: &Bound<'_, PyAny>,
    batch_size: i128,
    prompt: &Prompt,
) -> Result<Bound<'py, PyAny>> {
    let texts = Texts::of("texts", texts)?;
    let size = count("batch_size", batch_size, 1)?;
    let encoder = compute(py, || encoder.prompted(prompt))?;
    let slices = texts.slices();
    let values: Vec<f32> =
        portions(py, &slices, size, |texts| encoder.encode(texts).map(|vectors| vectors.values().to_vec()))?;
    let array = PyArray1::from_vec(py, values);
    if texts.is_one {
        return Ok(array.into_any());
    }
    let matrix: Bound<'py, PyArray2<f32>> = array.reshape([slices.len(), encoder.dim()])?;
    Ok(matrix.into_any())
}

/// The prompt of two arguments, at most one of which is given.
fn prompt_of(prompt: Option<String>, name: Option<String>) -> Result<Prompt> {
    match (name, prompt) {
        (Some(_), Some(_)) => Err(argument("prompt", "a prompt or its name", "both")),
        (Some(name), None) => Ok(Prompt::Named(name)),
        (None, Some(text)) => Ok(Prompt::Text(text)),
        (None, None) => Ok(Prompt::Default),
    }
}

/// As [`model_folder`]. A name that is neither a folder nor imported is that of a model of `sentence-transformers` on the hub.
fn encoder_folder(py: Python<'_>, model: &Path) -> Result<PathBuf> {
    let error = match model_folder(py, model) {
        Ok(folder) => return Ok(folder),
        Err(error) => error,
    };
    let name = model.to_str().filter(|name| !name.contains(['/', '\\', ':']) && !model.exists());
    let Some(name) = name else { return Err(error) };
    let hub = format!("hf:sentence-transformers/{name}");
    model_folder(py, Path::new(&hub))
        .map_err(|other| InputError::new_err(format!("{}; {hub}: {}", error.value(py), other.value(py))))
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
