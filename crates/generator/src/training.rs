//! The extractive reader during training.

use sporran_training::{ReaderScores, TunedEncoder};
use sporran_transformers::EncoderRow;

use crate::{Reader, Result};

/// A reader over the encoder that is being trained.
pub struct ReaderInTraining<'a> {
    /// The encoder.
    pub encoder: &'a TunedEncoder,
    /// The largest number of tokens of a batch.
    pub tokens: usize,
}

impl Reader for ReaderInTraining<'_> {
    fn scores(&self, rows: &[EncoderRow]) -> Result<Vec<ReaderScores>> {
        Ok(self.encoder.readings(rows, self.tokens)?)
    }
}
