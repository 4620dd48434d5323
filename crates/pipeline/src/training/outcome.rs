//! How trainings end.

use std::{fmt, path::PathBuf};

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

impl fmt::Display for Trained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps", self.steps)?;
        match self.best {
            Some((step, score)) => write!(f, ", best step {step}: validation score {:.1}", 100.0 * score),
            None => Ok(()),
        }
    }
}
