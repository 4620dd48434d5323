//! How trainings end.

use std::path::PathBuf;

use serde::Serialize;

/// How a training ended.
#[derive(Clone, Debug, Serialize)]
pub struct Trained {
    /// Where the model is.
    pub model: PathBuf,
    /// Steps made.
    pub steps: u64,
    /// The step of the best judgement and its score, 0 to 1: for a generator the mean over datasets of their headline
    /// scores, for an encoder the mean reciprocal rank.
    pub best: Option<(u64, f64)>,
}
