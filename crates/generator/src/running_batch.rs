//! A batch of requests that join and leave while others are answered.

use std::ops::ControlFlow;

use sporran_transformers::{
    GenerationOptions, Hypothesis,
    decode::{Event, Outcome, RequestId},
};

use crate::{
    Generation, Request, Result, Sink,
    one_model::{Asked, OneModel},
    text::GeneratedText,
    text_stream::TextStream,
};

/// A batch of requests to one generator, which join and leave between steps. Each is answered as it is alone.
///
/// A step adds a token to every request. The kinds `causal` and `seq2seq` have it, with a packed model on a CPU and without
/// beams: [`Generator::running_batch`](crate::Generator::running_batch).
pub struct RunningBatch<'a> {
    kind: &'a dyn OneModel,
    batch: sporran_transformers::RunningBatch,
    open: Vec<Open<'a>>,
    added: usize,
}

/// A request that is being answered.
struct Open<'a> {
    number: usize,
    /// Its number in the model's batch; none for a request without text, which has an empty answer.
    id: Option<RequestId>,
    asked: Asked,
    /// The number of tokens that the model reads.
    read: usize,
    sink: Box<dyn Sink + Send + 'a>,
    text: TextStream,
    /// Whether the sink has ended it.
    is_ended: bool,
}

impl<'a> RunningBatch<'a> {
    pub(crate) fn over(kind: &'a dyn OneModel) -> Result<Self> {
        Ok(Self { kind, batch: kind.model().running_batch()?, open: Vec::new(), added: 0 })
    }

    /// Adds a request, whose prompt is that of [`generate`](crate::Generator::generate). Options that are set take the place of
    /// the generator's. The sink receives the text, and can end the request. Returns the request's number, by which the sink
    /// knows it; numbers are not used again.
    ///
    /// # Errors
    /// Errors of the tokenizer, and options that cannot be used, such as beams. The batch is as before.
    pub fn add(
        &mut self,
        request: &Request<'_>,
        options: &GenerationOptions,
        sink: Box<dyn Sink + Send + 'a>,
    ) -> Result<usize> {
        let row = self.kind.rows(std::slice::from_ref(request))?.pop().unwrap_or_default();
        let id = match row.is_empty() {
            true => None,
            false => Some(self.kind.model().join(&mut self.batch, &row, options)?),
        };
        let number = self.added;
        self.added += 1;
        let (asked, read, text) =
            (Asked::of(request, self.kind.passages()), row.len(), TextStream::default());
        self.open.push(Open { number, id, asked, read, sink, text, is_ended: false });
        Ok(number)
    }

    /// Adds a token to every request. Returns the numbers and answers of those that are over: by their last token, because their sink ends them, or
    /// because their options leave no token to go on with.
    ///
    /// # Errors
    /// Errors of the model. The batch is empty then.
    pub fn step(&mut self) -> Result<Vec<(usize, Result<Generation>)>> {
        let mut over = Vec::new();
        for open in self.open.extract_if(.., |open| open.id.is_none()) {
            over.push((open.number, Ok(open.asked.generation(self.kind, vec![GeneratedText::nothing()]))));
        }
        let events = match self.batch.step() {
            Ok(events) => events,
            Err(error) => {
                self.open.clear();
                return Err(error.into());
            }
        };
        for Event { request, outcome } in events {
            let Some(at) = self.open.iter().position(|open| open.id == Some(request)) else { continue };
            let kind = self.kind;
            match outcome {
                Outcome::Token(token) => {
                    if self.open[at].write(kind, token).is_break() {
                        let open = self.open.remove(at);
                        let found = self.batch.remove(request)?;
                        over.extend(found.map(|found| open.answered(kind, &found)));
                    }
                }
                Outcome::Finished { token, hypothesis, .. } => {
                    let mut open = self.open.remove(at);
                    // The request is over, so there is nothing to end.
                    let _ = open.write(kind, token);
                    over.push(open.answered(kind, &hypothesis));
                }
                Outcome::Failed(error) => over.push((self.open.remove(at).number, Err(error.into()))),
            }
        }
        Ok(over)
    }

    /// Removes a request. Returns the answer that its text makes so far; none where the batch has no such request.
    ///
    /// # Errors
    /// Errors of the model and the tokenizer.
    pub fn remove(&mut self, number: usize) -> Result<Option<Generation>> {
        let Some(at) = self.open.iter().position(|open| open.number == number) else { return Ok(None) };
        let mut open = self.open.remove(at);
        open.is_ended = true;
        let found = match open.id {
            Some(id) => self.batch.remove(id)?,
            None => None,
        };
        let found = found.unwrap_or(Hypothesis { tokens: Vec::new(), score: 0.0 });
        open.answered(self.kind, &found).1.map(Some)
    }

    /// The number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there is no request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl Open<'_> {
    fn write(&mut self, kind: &dyn OneModel, token: u32) -> ControlFlow<()> {
        let text = self.text.push(token, kind.model().tokenizer(), kind.model().stops());
        let flow = self.sink.write(self.number, &text);
        self.is_ended = flow.is_break();
        flow
    }

    /// The answer; the sink receives the rest of its text.
    fn answered(self, kind: &dyn OneModel, hypothesis: &Hypothesis) -> (usize, Result<Generation>) {
        let output = match kind.model().finished(self.read, hypothesis) {
            Ok(output) => output,
            Err(error) => return (self.number, Err(error)),
        };
        let rest = self.text.rest(&output.text);
        if !rest.is_empty() && !self.is_ended {
            let _ = self.sink.write(self.number, rest);
        }
        (self.number, Ok(self.asked.generation(kind, vec![output])))
    }
}
