//! The seam of everything that scores triples.

use sporran_kilt::kb::{EntityId, RelationId};

use crate::{Error, Result};

/// Tells how plausible triples are; greater is more plausible. Scores of one question compare with each other; what those
/// of different questions tell is the implementation's to say.
///
/// A question's scores do not depend on the questions beside it, but for the last digits of sums.
pub trait TripleScorer: Send + Sync {
    /// The number of entities; ids are below it.
    fn entity_count(&self) -> usize;

    /// The number of relations; ids are below it.
    fn relation_count(&self) -> usize;

    /// Writes the score of every entity as the object of each question: `scores` has a row of all entities for each.
    ///
    /// # Errors
    /// [`Error::Argument`] for an id that is too large, or where `scores` has another size.
    fn score_objects(&self, questions: &[(EntityId, RelationId)], scores: &mut [f32]) -> Result<()>;

    /// Writes the score of every entity as the subject of each question.
    ///
    /// # Errors
    /// As [`score_objects`](Self::score_objects).
    fn score_subjects(&self, questions: &[(RelationId, EntityId)], scores: &mut [f32]) -> Result<()>;
}

/// Whether the ids of questions are below the counts and there is a place for every score.
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
            "expected places for {questions} times {entities} scores, found {places}"
        ))),
        _ => Ok(()),
    }
}
