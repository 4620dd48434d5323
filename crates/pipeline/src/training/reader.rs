//! The extractive reader during training.

use sporran_generator::Reader;
use sporran_training::{ReaderScores, TunedEncoder};
use sporran_transformers::EncoderRow;

/// A reader over the encoder that is being trained.
pub(crate) struct ReaderInTraining<'a> {
    pub(crate) encoder: &'a TunedEncoder,
    /// The largest number of tokens of a batch.
    pub(crate) tokens: usize,
}

impl Reader for ReaderInTraining<'_> {
    fn scores(&self, rows: &[EncoderRow]) -> sporran_generator::Result<Vec<ReaderScores>> {
        Ok(self.encoder.readings(rows, self.tokens)?)
    }
}
