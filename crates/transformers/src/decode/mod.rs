//! Sequences from a model: greedy and beam search.

mod options;

pub use options::{EarlyStopping, GenerationOptions};
