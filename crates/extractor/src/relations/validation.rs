//! Scores of annotated documents, and F1 on validation documents.

use std::borrow::Borrow;

use super::{Annotated, Properties, RelationModel, Scores, Thresholds};
use crate::Result;

/// The scores of a document's sentences, with joint scores of both directions of a pair if the model decides them together.
pub(super) fn decided_scores(model: &dyn RelationModel, annotated: &Annotated) -> Result<Vec<Scores>> {
    let scores = model.score(&annotated.inputs())?.into_iter().zip(&annotated.candidates);
    Ok(scores.map(|(scores, candidates)| model.decided(scores, candidates)).collect())
}

/// Each document with the scores of its sentences.
pub(super) fn with_scores<'a, T: Borrow<Annotated>>(
    documents: &'a [T],
    scores: &'a [Vec<Scores>],
) -> Vec<(&'a Annotated, &'a [Scores])> {
    documents.iter().zip(scores).map(|(annotated, scores)| (annotated.borrow(), &**scores)).collect()
}

/// The micro F1 with thresholds that are tuned on the same documents.
pub(super) fn tuned_f1<T: Borrow<Annotated>>(
    documents: &[T],
    scores: &[Vec<Scores>],
    properties: &Properties,
) -> f64 {
    let scored = with_scores(documents, scores);
    Thresholds::tuned(properties.len(), &scored).micro_f1(&scored)
}
