//! Scores of passages for a query.

use std::path::PathBuf;

use numpy::PyArray1;
use pyo3::prelude::*;
use sporran_checkpoint::ScoreActivation;
use sporran_kilt::{Passage, Query};
use sporran_pipeline::Error;
use sporran_reranker::{Computing, CrossEncoder, CrossEncoderOptions, LlmOptions, LlmReranker, Saved};

use crate::{
    arguments::{Texts, count, optional_count},
    calls::{compute, portions},
    encoder::{model_folder, parsed},
    error::{Result, argument},
};

/// Passages that are scored between two looks for Ctrl-C.
const PORTION: usize = 128;

/// The reranker of a folder.
enum Model {
    CrossEncoder(Box<CrossEncoder>, ScoreActivation),
    /// A language model that answers yes or no.
    Llm(Box<LlmReranker>, ScoreActivation),
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
    #[pyo3(signature = (model, *, instruction = None, raw_scores = false, max_tokens = None, precision = "f32", device = "cpu", batch_tokens = 4096))]
    #[allow(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn new(
        py: Python<'_>,
        model: PathBuf,
        instruction: Option<String>,
        raw_scores: bool,
        max_tokens: Option<i128>,
        precision: &str,
        device: &str,
        batch_tokens: i128,
    ) -> Result<Self> {
        let max_tokens = optional_count("max_tokens", max_tokens, 1)?;
        let batch_tokens = count("batch_tokens", batch_tokens, 1)?;
        let arguments = serde_json::json!({
            "model": model.to_string_lossy(), "instruction": instruction, "raw_scores": raw_scores, "max_tokens": max_tokens, "precision": precision,
            "device": device, "batch_tokens": batch_tokens,
        });
        let computing = Computing {
            precision: parsed("precision", precision)?,
            device: parsed("device", device)?,
            batch_tokens,
        };
        let has_instruction = instruction.is_some();
        let folder = model_folder(py, &model)?;
        let model = compute(py, || {
            let Computing { precision, device, batch_tokens } = computing;
            let saved = Saved::read(&folder)?;
            let activation =
                |folders: ScoreActivation| if raw_scores { ScoreActivation::Identity } else { folders };
            if let Saved::Llm { .. } = saved {
                let options = LlmOptions {
                    precision,
                    device,
                    max_tokens,
                    batch_tokens,
                    instruction,
                    ..LlmOptions::new(folder)
                };
                let model = LlmReranker::load(&options)?;
                let activation = activation(model.activation()?);
                return Ok::<_, Error>(Model::Llm(Box::new(model), activation));
            }
            if let Saved::CrossEncoder { .. } = saved {
                let options = CrossEncoderOptions {
                    precision,
                    device,
                    max_tokens,
                    batch_tokens,
                    ..CrossEncoderOptions::new(folder)
                };
                let model = CrossEncoder::load(&options)?;
                let activation = activation(model.activation()?);
                return Ok(Model::CrossEncoder(Box::new(model), activation));
            }
            Ok(Model::Other(sporran_reranker::open(&folder, computing)?))
        })?;
        if has_instruction && !matches!(model, Model::Llm(..)) {
            return Err(argument("instruction", "none for this kind of reranker", "an instruction"));
        }
        if raw_scores && matches!(model, Model::Other(_)) {
            return Err(argument("raw_scores", "False for this kind of reranker", "True"));
        }
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
            Model::Llm(model, activation) => {
                let pairs: Vec<(&str, &str)> = texts.iter().map(|text| (query, *text)).collect();
                let odds = model.log_odds(&pairs)?;
                Ok(odds.iter().map(|odds| activation.scores(&[*odds])[0]).collect())
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
