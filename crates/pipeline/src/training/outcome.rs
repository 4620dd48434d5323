//! How trainings end.

use std::{fmt, path::PathBuf};

use serde::Serialize;

use crate::run_dir::manifest::TrainingEntry;

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

impl Trained {
    /// What the manifest says of it.
    pub(crate) fn entry(&self) -> TrainingEntry {
        TrainingEntry { steps: self.steps, best: self.best.map(|(_, score)| score) }
    }
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
