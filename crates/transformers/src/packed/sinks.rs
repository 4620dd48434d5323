//! Heads that may attend to nothing: the score of that is a parameter (OpenAI 2025, "attention sinks").
//!
//! Nothing is a key and a value of zeros beside those of the tokens. Its score is a bias.

use std::ops::Range;

/// The biases of one head on the scores of a sequence's tokens and then of nothing, for query after query. `order` has the biases
/// by distance, from that of the last query of `longest` to the first key on.
pub(super) fn all_biases(order: &[f32], longest: usize, length: usize, sink: f32) -> Vec<f32> {
    let seen = |query: usize| order[longest - 1 - query..][..length].iter().copied().chain([sink]);
    (0..length).flat_map(seen).collect()
}

/// The biases of one head on the scores of the last token: `length` tokens, the last one first, and then nothing.
pub(super) fn last_biases(length: usize, sink: f32) -> Vec<f32> {
    let mut biases = vec![0.0; length];
    biases.push(sink);
    biases
}

/// The keys and values of sequences, which have `width` values for each of their rows, with those of nothing.
pub(super) fn with_nothing(kept: &[f32], rows: Range<usize>, width: usize) -> Vec<f32> {
    let mut all = Vec::with_capacity((rows.len() + 1) * width);
    all.extend_from_slice(kept);
    all.resize((rows.len() + 1) * width, 0.0);
    all
}
