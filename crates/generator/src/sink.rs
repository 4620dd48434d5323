//! Answers while they are generated.

use std::{
    ops::ControlFlow,
    sync::{Mutex, PoisonError},
};

use sporran_checkpoint::Tokenizer;
use sporran_transformers::decode::TokenSink;

use crate::text_stream::TextStream;

/// Receives the text of answers while it is generated, and can end a request.
///
/// Requests of a batch are generated together, and batches by several threads, so calls for different requests mix.
/// A request's number is its place among the requests of the call, or that which [`RunningBatch::add`] returns.
///
/// [`RunningBatch::add`]: crate::RunningBatch::add
pub trait Sink: Sync {
    /// More text of an answer. The texts of a request, joined, are what the model generates; [`Generation::text`] is the
    /// answer that the generator makes of it, for example without blanks around it. `text` is empty in the steps of a
    /// search that has no text before its end, such as one with beams. With [`ControlFlow::Break`] the request ends: its
    /// [`Generation`](crate::Generation) has the best text so far, with the score of that sequence, and the sink receives
    /// nothing more of it.
    ///
    /// [`Generation::text`]: crate::Generation::text
    fn write(&self, request: usize, text: &str) -> ControlFlow<()>;
}

/// Decodes tokens for a [`Sink`].
pub(crate) struct Writer<'a> {
    sink: &'a dyn Sink,
    tokenizer: &'a Tokenizer,
    /// Texts before whose first an answer ends.
    stops: &'a [String],
    /// The number of the request of each input.
    requests: Vec<usize>,
    written: Vec<Mutex<Written>>,
}

#[derive(Default)]
struct Written {
    text: TextStream,
    /// Whether the sink has ended the request.
    is_ended: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(
        sink: &'a dyn Sink,
        tokenizer: &'a Tokenizer,
        stops: &'a [String],
        requests: Vec<usize>,
    ) -> Self {
        let written = requests.iter().map(|_| Mutex::default()).collect();
        Self { sink, tokenizer, stops, requests, written }
    }

    /// Writes the rest of an input's text.
    pub(crate) fn finish(&self, input: usize, text: &str) {
        let written = self.written[input].lock().unwrap_or_else(PoisonError::into_inner);
        let rest = written.text.rest(text);
        if !rest.is_empty() && !written.is_ended {
            // The generation is over, so there is nothing to end.
            let _ = self.sink.write(self.requests[input], rest);
        }
    }
}

impl TokenSink for Writer<'_> {
    fn token(&self, input: usize, token: Option<u32>) -> ControlFlow<()> {
        let mut written = self.written[input].lock().unwrap_or_else(PoisonError::into_inner);
        let text = token.map(|token| written.text.push(token, self.tokenizer, self.stops));
        let flow = self.sink.write(self.requests[input], &text.unwrap_or_default());
        written.is_ended = flow.is_break();
        flow
    }
}
