//! The interface of everything that scores triples.

use sporran_kilt::kb::{EntityId, RelationId};

use crate::{Error, Result};

/// Scores the plausibility of triples; greater is more plausible. Scores of one question are comparable.
/// Whether scores of different questions are comparable depends on the implementation.
///
/// A question's scores do not depend on the other questions of the call, up to rounding.
pub trait TripleScorer: Send + Sync {
    /// The number of entities; all ids are smaller.
    fn entity_count(&self) -> usize;

    /// The number of relations; all ids are smaller.
    fn relation_count(&self) -> usize;

    /// Writes the score of every entity as the object of each question. `scores` has one row a question, one
    /// column an entity.
    ///
    /// # Errors
    /// [`Error::Argument`] for an id that is too large, or if `scores` has another size.
    fn score_objects(&self, questions: &[(EntityId, RelationId)], scores: &mut [f32]) -> Result<()>;

    /// Writes the score of every entity as the subject of each question.
    ///
    /// # Errors
    /// As [`score_objects`](Self::score_objects).
    fn score_subjects(&self, questions: &[(RelationId, EntityId)], scores: &mut [f32]) -> Result<()>;
}

/// Checks the ids of questions and the number of scores.
pub(crate) fn check(
    ids: impl Iterator<Item = (EntityId, RelationId)>,
    (entities, relations): (usize, usize),
    places: Option<(usize, usize)>,
) -> Result<()> {
    for (entity, relation) in ids {
        if entity.index() >= entities || relation.index() >= relations {
            return Err(Error::Argument(format!(
                "expected ids below {entities} (entities) and {relations} (relations), found {} and {}",
                entity.0, relation.0
            )));
        }
    }
    match places {
        Some((questions, places)) if questions * entities != places => Err(Error::Argument(format!(
            "expected a buffer for {questions} times {entities} scores, found {places}"
        ))),
        _ => Ok(()),
    }
}
