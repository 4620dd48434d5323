//! The result of a training.

use std::{fmt, path::PathBuf};

use serde::Serialize;
use sporran_kilt::counted;

/// The result of a training.
#[derive(Clone, Debug, Serialize)]
pub struct Trained {
    /// The folder of the model.
    pub model: PathBuf,
    /// The number of optimizer steps.
    pub steps: u64,
    /// The step with the best validation score, and that score from 0 to 1. A generator has the mean over datasets of their
    /// headline scores, a decoder-only one the reciprocal of the perplexity, an encoder the mean reciprocal rank.
    pub best: Option<(u64, f64)>,
}

impl fmt::Display for Trained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.steps, "step"))?;
        match self.best {
            Some((step, score)) => write!(f, ", best step {step}: validation score {:.1}", 100.0 * score),
            None => Ok(()),
        }
    }
}
