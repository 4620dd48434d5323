//! The vectors of a frozen encoder.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::observe::Observer;

use super::{
    RerankerSession, RerankerTrainingKind,
    similarities::{WeightedSimilarities, write_similarities},
    untrained::write_cosine,
};
use crate::{Result, Saved};

/// `kind = "cosine"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EncoderOptions {
    /// The model's folder: a model of sentence-transformers, or an encoder, whose hidden states are averaged.
    pub from: PathBuf,
    /// The largest number of tokens of a text. A longer dialogue loses its beginning.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
}

impl RerankerTrainingKind for EncoderOptions {
    fn from(&self) -> Option<&Path> {
        Some(&self.from)
    }

    fn train(&self, session: &RerankerSession<'_>, _: &mut Observer<'_>) -> Result<u64> {
        let similarities = write_similarities(session, &self.from, self.max_tokens)?;
        if similarities.is_empty() {
            write_cosine(&self.from, self.max_tokens, session.model)?;
            return Ok(0);
        }
        let parts = WeightedSimilarities::train(similarities, session)?.parts().collect();
        Saved::Combined { parts }.write(session.model)?;
        Ok(0)
    }
}
