//! Texts in, texts out.

use std::path::PathBuf;

use pyo3::{prelude::*, types::PyDict};
use serde_json::{Value, json};
use sporran_generator::{ChatPrompt, Conversation, ModelOptions, TextGenerator};
use sporran_pipeline::Error;
use sporran_transformers::GenerationOptions;

use crate::{
    arguments::{Texts, count, optional_count, options, table},
    calls::{compute, portions},
    encoder::{model_folder, parsed},
    error::{Result, argument},
};

/// A sequence-to-sequence or decoder-only model.
#[pyclass(frozen, module = "sporran")]
pub(crate) struct Generator {
    generator: TextGenerator,
    chat: Option<(ChatPrompt, String)>,
    /// Inputs that are answered between two looks for Ctrl-C.
    portion: usize,
    arguments: String,
}

#[pymethods]
impl Generator {
    #[new]
    #[pyo3(signature = (model, *, chat = false, system = "", precision = "f32", device = "cpu", engine = "auto", max_input_tokens = None,
                        batch_size = 16, stops = Vec::new(), **generation))]
    #[allow(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn new(
        py: Python<'_>,
        model: PathBuf,
        chat: bool,
        system: &str,
        precision: &str,
        device: &str,
        engine: &str,
        max_input_tokens: Option<i128>,
        batch_size: i128,
        stops: Vec<String>,
        generation: Option<&Bound<'_, PyDict>>,
    ) -> Result<Self> {
        let max_input_tokens = optional_count("max_input_tokens", max_input_tokens, 1)?;
        let batch_size = count("batch_size", batch_size, 1)?;
        let table = table(generation)?;
        let mut arguments = json!({
            "model": model.to_string_lossy(), "chat": chat, "system": system, "precision": precision, "device": device,
            "engine": engine, "max_input_tokens": max_input_tokens, "batch_size": batch_size, "stops": stops,
        });
        if let (Value::Object(all), Value::Object(given)) = (&mut arguments, &table) {
            all.extend(given.iter().map(|(key, value)| (key.replace('-', "_"), value.clone())));
        }
        let generation: GenerationOptions = options(table)?;
        let read = ModelOptions {
            precision: parsed("precision", precision)?,
            device: parsed("device", device)?,
            engine: parsed("engine", engine)?,
            max_tokens: max_input_tokens.unwrap_or(usize::MAX),
            batch_size,
            stops,
            ..ModelOptions::new(PathBuf::new(), generation)
        };
        let folder = model_folder(py, &model)?;
        let read = ModelOptions { folder: folder.clone(), ..read };
        let generator = compute(py, || TextGenerator::load(&read))?;
        let chat = if chat {
            let expected = "a decoder-only model with a chat template";
            let found = || argument("chat", expected, folder.display());
            if !generator.is_causal() {
                return Err(found());
            }
            let prompt = compute(py, || ChatPrompt::open(&folder, generator.tokenizer()))?;
            Some((prompt.ok_or_else(found)?, system.to_owned()))
        } else {
            None
        };
        let end = chat.as_ref().and_then(|(prompt, _)| prompt.end()).map(str::to_owned);
        let generator = generator.ending_at(end.as_deref());
        Ok(Self { generator, chat, portion: batch_size, arguments: arguments.to_string() })
    }

    /// The text for each prompt, or for one; the best one where several are asked for.
    fn generate<'py>(&self, py: Python<'py>, prompts: &Bound<'_, PyAny>) -> Result<Bound<'py, PyAny>> {
        let prompts = Texts::of("prompts", prompts)?;
        // Prompts of similar length share a batch, so a portion has several batches.
        let answers: Vec<String> =
            portions(py, &prompts.slices(), self.portion.saturating_mul(4), |texts| {
                let rows: std::result::Result<Vec<Vec<u32>>, Error> =
                    texts.iter().map(|text| self.row(text)).collect();
                let outputs = self.generator.generate_from(&rows?, None)?;
                let best = |texts: Vec<sporran_generator::GeneratedText>| {
                    texts.into_iter().next().map_or_else(String::new, |best| best.text)
                };
                Ok::<_, Error>(outputs.into_iter().map(best).collect())
            })?;
        if prompts.is_one {
            return Ok(answers.into_iter().next().unwrap_or_default().into_pyobject(py)?.into_any());
        }
        answers.into_pyobject(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, (&'static str, String))> {
        Ok((py.import("sporran")?.getattr("_again")?, ("Generator", self.arguments.clone())))
    }
}

impl Generator {
    /// The tokens of a prompt; none for a blank one.
    fn row(&self, text: &str) -> std::result::Result<Vec<u32>, Error> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        let (row, _) = match &self.chat {
            Some((prompt, system)) => {
                let conversation = Conversation { system, asked: text, ..Conversation::default() };
                prompt.encode(&conversation, self.generator.tokenizer(), self.generator.max_tokens())?
            }
            None => self.generator.encode(text)?,
        };
        Ok(row)
    }
}
