//! Answers while they are generated.

use std::{
    ops::ControlFlow,
    sync::{Mutex, PoisonError},
};

use sporran_checkpoint::Tokenizer;
use sporran_transformers::decode::TokenSink;

/// Receives the text of answers while it is generated, and can end a request.
///
/// Requests of a batch are generated together, and batches by several threads, so calls for different requests mix.
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
    tokens: Vec<u32>,
    /// The bytes of the text that the sink has.
    bytes: usize,
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
        if let Some(rest) = text.get(written.bytes..).filter(|rest| !rest.is_empty() && !written.is_ended) {
            // The generation is over, so there is nothing to end.
            let _ = self.sink.write(self.requests[input], rest);
        }
    }
}

impl TokenSink for Writer<'_> {
    fn token(&self, input: usize, token: Option<u32>) -> ControlFlow<()> {
        let request = self.requests[input];
        let mut written = self.written[input].lock().unwrap_or_else(PoisonError::into_inner);
        let Some(token) = token else {
            let flow = self.sink.write(request, "");
            written.is_ended = flow.is_break();
            return flow;
        };
        written.tokens.push(token);
        // An error of the tokenizer is reported for the whole answer.
        let text = self.tokenizer.decode(&written.tokens).unwrap_or_default();
        let ready = &text[..ready(&text, self.stops)];
        let Some(new) = ready.get(written.bytes..) else { return ControlFlow::Continue(()) };
        let flow = self.sink.write(request, new);
        written.bytes = ready.len();
        written.is_ended = flow.is_break();
        flow
    }
}

/// The length of the text that further tokens do not change: without an unfinished character, and without an end that may
/// become one of `stops`.
fn ready(text: &str, stops: &[String]) -> usize {
    if let Some(end) = stops.iter().filter_map(|stop| text.find(stop)).min() {
        return end;
    }
    let text = text.trim_end_matches('\u{fffd}');
    let may_become = |start: usize| stops.iter().any(|stop| stop.starts_with(&text[start..]));
    text.char_indices().map(|(start, _)| start).find(|&start| may_become(start)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::ready;

    #[test]
    fn unfinished_characters_and_stops_are_held_back() {
        let stops = ["\n\n".to_owned(), "END".to_owned()];
        for (text, expected) in
            [("a b", 3), ("a \u{fffd}", 2), ("a\n", 1), ("a\nb", 3), ("a\n\nb", 1), ("aEN", 1), ("aENT", 4)]
        {
            assert_eq!(ready(text, &stops), expected, "{text:?}");
        }
        assert_eq!(ready("a\n", &[]), 2);
    }
}
