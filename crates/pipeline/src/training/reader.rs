//! A reader of passages whose encoder is being trained.

use sporran_generator::Reader;
use sporran_training::{ReaderScores, TunedEncoder};
use sporran_transformers::EncoderRow;

/// The reader as it is while it is trained.
pub(crate) struct ReaderInTraining<'a> {
    pub(crate) encoder: &'a TunedEncoder,
    /// Tokens of a batch, at most.
    pub(crate) tokens: usize,
}

impl Reader for ReaderInTraining<'_> {
    fn scores(&self, rows: &[EncoderRow]) -> sporran_generator::Result<Vec<ReaderScores>> {
        Ok(self.encoder.readings(rows, self.tokens)?)
    }
}
