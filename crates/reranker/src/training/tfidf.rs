//! Tf-idf with the word counts of the training data.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::observe::Observer;

use super::{GradedQuery, RerankerSession, RerankerTrainingKind};
use crate::{COUNTS, Result, Saved, TfIdf};

/// `kind = "tfidf"` has no options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoOptions {}

impl RerankerTrainingKind for NoOptions {
    fn combines(&self) -> bool {
        false
    }

    fn train(&self, session: &RerankerSession<'_>, _: &mut Observer<'_>) -> Result<u64> {
        write_tfidf(session.queries, false, session.model)?;
        Ok(0)
    }
}

/// Counts the words of the texts, and writes a reranker that compares them.
pub(super) fn write_tfidf(queries: &[GradedQuery], titles_only: bool, model: &Path) -> Result<()> {
    let texts: Vec<String> = queries.iter().flat_map(GradedQuery::texts).collect();
    TfIdf::fit(texts.iter().map(String::as_str)).save(&model.join(COUNTS))?;
    Saved::TfIdf { titles_only }.write(model)
}
