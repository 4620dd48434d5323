//! Kinds that answer with one model, which reads a row of tokens for each request.

use sporran_kilt::{Dataset, Task};

use crate::{
    Generation, Generator, Request, Result, Sink, TextGenerator,
    prompt::START,
    short_answer::{named_label, named_title},
    text::GeneratedText,
};

/// A generator that answers with one model.
pub(crate) trait OneModel: Generator {
    /// The model.
    fn model(&self) -> &TextGenerator;

    /// The tokens that the model reads for each request; none where there is nothing to read.
    ///
    /// # Errors
    /// Errors of the tokenizer.
    fn rows(&self, requests: &[Request<'_>]) -> Result<Vec<Vec<u32>>>;

    /// The answer to a request that the model's text holds, and the indices of the passages that are its evidence.
    fn answer(&self, asked: &Asked, text: &str) -> (String, Vec<usize>);
}

/// What an answer depends on besides the model's text.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    task: Option<Task>,
    /// Whether the query has a tagged mention.
    has_mention: bool,
    /// The titles of the passages that the model reads.
    titles: Vec<String>,
}

impl Asked {
    /// `most`: the number of passages that the model reads, at most.
    pub(crate) fn of(request: &Request<'_>, most: usize) -> Self {
        let titles = request.passages.iter().take(most).map(|found| found.passage.title.clone()).collect();
        let task = request.query.dataset.map(Dataset::task);
        Self { task, has_mention: request.query.text.contains(START), titles }
    }

    pub(crate) fn task(&self) -> Option<Task> {
        self.task
    }

    /// An answer as it is. All passages that the model reads are its evidence.
    pub(crate) fn free(&self, text: String) -> (String, Vec<usize>) {
        (text, (0..self.titles.len()).collect())
    }

    /// An answer that is a choice: a label for a claim, the title of a passage for a mention. The passage of the title is the
    /// first evidence. Other answers stay as they are.
    pub(crate) fn chosen(&self, text: String) -> (String, Vec<usize>) {
        let is_link = self.task == Some(Task::EntityLinking) || (self.task.is_none() && self.has_mention);
        if self.task == Some(Task::FactChecking) {
            let label = named_label(&text).map(str::to_owned);
            return self.free(label.unwrap_or(text));
        }
        if !is_link || self.titles.is_empty() {
            return self.free(text);
        }
        let chosen = named_title(&text, &self.titles).unwrap_or(0);
        let others = (0..self.titles.len()).filter(|&at| at != chosen);
        (self.titles[chosen].clone(), std::iter::once(chosen).chain(others).collect())
    }

    /// The generation of the model's texts, best first.
    pub(crate) fn generation(&self, kind: &dyn OneModel, outputs: Vec<GeneratedText>) -> Generation {
        let tokens = outputs.first().map_or(0, |output| output.tokens);
        let mut outputs = outputs.into_iter().map(|output| (kind.answer(self, &output.text), output.score));
        // A search returns at least one sequence for every input.
        let ((text, evidence), score) = outputs.next().unwrap_or_default();
        let alternatives = outputs.map(|((text, _), score)| (text, score)).collect();
        Generation { text, score, alternatives, evidence, tokens }
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
    Ok(answers
        .map(|(request, outputs)| Asked::of(request, kind.passages()).generation(kind, outputs))
        .collect())
}
