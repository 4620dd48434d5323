//! Tokens while they are generated.

use std::ops::ControlFlow;

/// Receives the tokens of a search, and can end it.
pub trait TokenSink: Sync {
    /// Called in every step of an input's search. `token` is the next token of its sequence; `None` in a search with
    /// beams or with several samples, which has no sequence before its end. With [`ControlFlow::Break`] the input's
    /// search ends, and its result is the best sequence so far.
    fn token(&self, input: usize, token: Option<u32>) -> ControlFlow<()>;
}
