//! Scores of passages for a query.

use std::path::PathBuf;

use numpy::PyArray1;
use pyo3::prelude::*;
use sporran_checkpoint::ScoreActivation;
use sporran_kilt::{Passage, Query};
use sporran_pipeline::Error;
use sporran_reranker::{Computing, CrossEncoder, CrossEncoderOptions, Saved};

use crate::{
    arguments::Texts,
    calls::{compute, portions},
    encoder::{model_folder, parsed},
    error::{Result, argument},
};

/// Passages that are scored between two looks for Ctrl-C.
const PORTION: usize = 128;

/// The reranker of a folder.
enum Model {
    CrossEncoder(Box<CrossEncoder>, ScoreActivation),
    Other(Box<dyn sporran_reranker::Reranker>),
}

/// A reranker.
#[pyclass(frozen, module = "sporran")]
pub(crate) struct Reranker {
    model: Model,
    arguments: String,
}

#[pymethods]
impl Reranker {
    #[new]
    #[pyo3(signature = (model, *, raw_scores = false, max_tokens = None, precision = "f32", device = "cpu", batch_tokens = 4096))]
    fn new(
        py: Python<'_>,
        model: PathBuf,
        raw_scores: bool,
        max_tokens: Option<usize>,
        precision: &str,
        device: &str,
        batch_tokens: usize,
    ) -> Result<Self> {
        let arguments = serde_json::json!({
            "model": model, "raw_scores": raw_scores, "max_tokens": max_tokens, "precision": precision,
            "device": device, "batch_tokens": batch_tokens,
        });
        let computing = Computing {
            precision: parsed("precision", precision)?,
            device: parsed("device", device)?,
            batch_tokens,
        };
        let folder = model_folder(py, &model)?;
        let model = compute(py, || {
            let Computing { precision, device, batch_tokens } = computing;
            if let Saved::CrossEncoder { .. } = Saved::read(&folder)? {
                let options = CrossEncoderOptions {
                    precision,
                    device,
                    max_tokens,
                    batch_tokens,
                    ..CrossEncoderOptions::new(folder)
                };
                let model = CrossEncoder::load(&options)?;
                let activation = if raw_scores { ScoreActivation::Identity } else { model.activation()? };
                return Ok::<_, Error>(Model::CrossEncoder(Box::new(model), activation));
            }
            Ok(Model::Other(sporran_reranker::open(&folder, computing)?))
        })?;
        if let Model::CrossEncoder(model, _) = &model
            && model.labels() != 1
        {
            return Err(argument("model", "a reranker with one label", model.labels()));
        }
        Ok(Self { model, arguments: arguments.to_string() })
    }

    /// The score of each passage: an array of float32, (passages,). Greater is better.
    fn score<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        passages: &Bound<'_, PyAny>,
    ) -> Result<Bound<'py, PyArray1<f32>>> {
        let passages = Texts::of("passages", passages)?;
        let scores = portions(py, &passages.slices(), PORTION, |texts| match &self.model {
            Model::CrossEncoder(model, activation) => {
                let pairs: Vec<(&str, &str)> = texts.iter().map(|text| (query, *text)).collect();
                let logits = model.logits(&pairs)?;
                Ok::<_, Error>(logits.iter().map(|row| activation.scores(row)[0]).collect())
            }
            Model::Other(model) => {
                let passages: Vec<Passage> = texts.iter().map(|text| Passage::of_text(*text)).collect();
                let passages: Vec<&Passage> = passages.iter().collect();
                Ok(model.score(&Query::of_text("", query), &passages)?)
            }
        })?;
        Ok(PyArray1::from_vec(py, scores))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, (&'static str, String))> {
        Ok((py.import("sporran")?.getattr("_again")?, ("Reranker", self.arguments.clone())))
    }
}
