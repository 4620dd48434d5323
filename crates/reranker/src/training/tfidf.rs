//! Tf-idf with the word counts of the training data. Each turn and each passage is a text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::observe::Observer;

use super::{RerankerSession, RerankerTrainingKind, untrained::write_tfidf_of_turns};
use crate::Result;

/// `kind = "tfidf"` has no options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoOptions {}

impl RerankerTrainingKind for NoOptions {
    fn combines(&self) -> bool {
        false
    }

    fn train(&self, session: &RerankerSession<'_>, _: &mut Observer<'_>) -> Result<u64> {
        write_tfidf_of_turns(session.queries, session.model)?;
        Ok(0)
    }
}
