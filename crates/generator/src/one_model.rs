//! Kinds that answer with one model, which reads a row of tokens for each request.

use sporran_kilt::{Dataset, Task};

use crate::{Generation, Generator, Request, Result, Sink, TextGenerator, text::GeneratedText};

/// A generator that answers with one model.
pub(crate) trait OneModel: Generator {
    /// The model.
    fn model(&self) -> &TextGenerator;

    /// The tokens that the model reads for each request; none where there is nothing to read.
    ///
    /// # Errors
    /// Errors of the tokenizer.
    fn rows(&self, requests: &[Request<'_>]) -> Result<Vec<Vec<u32>>>;

    /// The answer to a request of `task` that the model's text holds.
    fn answer(&self, task: Option<Task>, text: &str) -> String;
}

/// What an answer depends on besides the model's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    task: Option<Task>,
    /// The number of passages.
    passages: usize,
}

impl Asked {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        Self { task: request.query.dataset.map(Dataset::task), passages: request.passages.len() }
    }

    /// The generation of the model's texts, best first.
    pub(crate) fn generation(self, kind: &dyn OneModel, outputs: Vec<GeneratedText>) -> Generation {
        let tokens = outputs.first().map_or(0, |output| output.tokens);
        let mut outputs =
            outputs.into_iter().map(|output| (kind.answer(self.task, &output.text), output.score));
        // A search returns at least one sequence for every input.
        let (text, score) = outputs.next().unwrap_or_default();
        let evidence = (0..self.passages.min(kind.passages())).collect();
        Generation { text, score, alternatives: outputs.collect(), evidence, tokens }
    }
}

/// The answers to requests, with a sink that receives the texts while they are generated.
pub(crate) fn answers(
    kind: &dyn OneModel,
    requests: &[Request<'_>],
    sink: Option<&dyn Sink>,
) -> Result<Vec<Generation>> {
    let outputs = kind.model().generate_from(&kind.rows(requests)?, sink)?;
    let answers = requests.iter().zip(outputs);
    Ok(answers.map(|(request, outputs)| Asked::of(request).generation(kind, outputs)).collect())
}
