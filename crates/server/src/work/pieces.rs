//! The text of an answer on its way from a generator to a client.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sporran_generator::{Generation, Sink};
use tokio::sync::Notify;

use crate::{Failure, metrics::WorkerMetrics};

/// A part of an answer.
#[derive(Debug)]
pub(crate) enum Piece {
    /// More text.
    Text(String),
    /// The end.
    Done(Box<Result<Generated, Failure>>),
}

/// A finished answer.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    /// The answer.
    pub(crate) generation: Generation,
    /// The number of tokens of the prompt; 0 if the generator does not tell.
    pub(crate) read: usize,
    /// Whether it ended because of its length.
    pub(crate) is_cut: bool,
}

/// The two ends of an answer. Text that the reader has not taken yet is kept as one, so that a slow reader does not hold up
/// the generator, and what waits is never longer than the answer.
pub(crate) fn pieces() -> (PieceSender, PieceReceiver) {
    let shared = Arc::new(Shared { state: Mutex::default(), changed: Notify::new() });
    (PieceSender(Arc::clone(&shared)), PieceReceiver(shared))
}

struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    text: String,
    done: Option<Box<Result<Generated, Failure>>>,
    /// Whether the generator has dropped its end.
    is_over: bool,
    /// Whether the reader wants no more text.
    is_stopped: bool,
    /// Whether the reader has gone.
    is_gone: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The generator's end.
pub(crate) struct PieceSender(Arc<Shared>);

impl PieceSender {
    /// Whether the client has gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.lock().is_gone
    }

    /// Ends the answer.
    pub(crate) fn end(self, result: Result<Generated, Failure>) {
        self.0.lock().done = Some(Box::new(result));
    }

    /// What receives the text. It ends an answer that the reader stops, one whose reader has gone, and one of `most` tokens.
    pub(crate) fn sink(&self, most: Option<usize>, metrics: &WorkerMetrics) -> PieceSink {
        let left = Mutex::new(most.unwrap_or(usize::MAX));
        PieceSink { shared: Arc::clone(&self.0), left, metrics: metrics.clone() }
    }
}

impl Drop for PieceSender {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_one();
    }
}

/// Sends text on.
pub(crate) struct PieceSink {
    shared: Arc<Shared>,
    /// The calls that are left.
    left: Mutex<usize>,
    metrics: WorkerMetrics,
}

impl Sink for PieceSink {
    fn write(&self, _: usize, text: &str) -> ControlFlow<()> {
        let mut state = self.shared.lock();
        state.text.push_str(text);
        let (is_gone, is_stopped) = (state.is_gone, state.is_stopped);
        drop(state);
        if !text.is_empty() {
            self.shared.changed.notify_one();
        }
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_sub(1);
        if is_gone {
            self.metrics.cancelled.inc();
        }
        if is_gone || is_stopped || *left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The client's end. The generation ends at the next token when it is dropped.
pub(crate) struct PieceReceiver(Arc<Shared>);

impl PieceReceiver {
    /// The next piece: all text that waits, or the end. `None` after the end.
    pub(crate) async fn next(&mut self) -> Option<Piece> {
        loop {
            {
                let mut state = self.0.lock();
                if !state.text.is_empty() {
                    return Some(Piece::Text(std::mem::take(&mut state.text)));
                }
                if let Some(done) = state.done.take() {
                    return Some(Piece::Done(done));
                }
                if state.is_over {
                    return None;
                }
            }
            self.0.changed.notified().await;
        }
    }

    /// Ends the generation at its next token. What it has then follows.
    pub(crate) fn stop(&mut self) {
        self.0.lock().is_stopped = true;
    }

    /// The end, without the text.
    ///
    /// # Errors
    /// The failure of the generation, and a generator that has ended.
    pub(crate) async fn finished(mut self) -> Result<Generated, Failure> {
        while let Some(piece) = self.next().await {
            if let Piece::Done(result) = piece {
                return *result;
            }
        }
        Err(Failure::internal("a generator has ended"))
    }
}

impl Drop for PieceReceiver {
    fn drop(&mut self) {
        self.0.lock().is_gone = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    fn generated(text: &str) -> Generated {
        let generation = Generation {
            text: text.into(),
            score: 0.0,
            alternatives: Vec::new(),
            evidence: Vec::new(),
            tokens: 2,
        };
        Generated { generation, read: 1, is_cut: false }
    }

    #[test]
    fn text_that_waits_is_one_piece_and_the_end_follows() {
        let (sender, mut receiver) = pieces();
        let sink = sender.sink(None, &Metrics::new().worker("test"));
        assert!(sink.write(0, "a").is_continue() && sink.write(0, "b").is_continue());
        sender.end(Ok(generated("ab")));
        run(async {
            assert!(matches!(receiver.next().await, Some(Piece::Text(text)) if text == "ab"));
            assert!(matches!(receiver.next().await, Some(Piece::Done(_))));
            assert!(receiver.next().await.is_none());
        });
    }

    #[test]
    fn an_answer_ends_when_its_reader_stops_or_goes_or_its_tokens_are_over() {
        let metrics = Metrics::new();
        let worker = metrics.worker("test");
        let (sender, mut receiver) = pieces();
        let sink = sender.sink(Some(2), &worker);
        assert!(sink.write(0, "a").is_continue() && sink.write(0, "b").is_break());
        let sink = sender.sink(None, &worker);
        receiver.stop();
        assert!(sink.write(0, "c").is_break() && worker.cancelled.get() == 0);
        sender.end(Ok(generated("abc")));
        assert_eq!(run(receiver.finished()).unwrap().generation.tokens, 2);
        let (sender, receiver) = pieces();
        drop(receiver);
        assert!(sender.is_gone() && sender.sink(None, &worker).write(0, "a").is_break());
        assert_eq!(worker.cancelled.get(), 1);
        // A generator that panics drops its end.
        let (sender, receiver) = pieces();
        drop(sender);
        assert!(run(receiver.finished()).is_err());
    }
}
