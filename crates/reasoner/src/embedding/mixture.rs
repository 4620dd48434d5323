//! A weighted sum of several scorers.

use sporran_kilt::kb::{EntityId, RelationId};

use super::scorer::TripleScorer;
use crate::{Error, Result};

/// Scorers with their weights. Each scorer's scores of a question are scaled to 0 to 1 before they are
/// summed, so that embeddings and rules are comparable. A scorer that gives all entities the same score adds
/// nothing.
pub struct Mixture<'a> {
    parts: Vec<(&'a dyn TripleScorer, f32)>,
}

impl<'a> Mixture<'a> {
    /// Combines scorers over the same knowledge base.
    ///
    /// # Errors
    /// [`Error::Argument`] without parts, or if their numbers of entities or relations differ.
    pub fn new(parts: Vec<(&'a dyn TripleScorer, f32)>) -> Result<Self> {
        let sizes = |part: &dyn TripleScorer| (part.entity_count(), part.relation_count());
        let Some(expected) = parts.first().map(|(part, _)| sizes(*part)) else {
            return Err(Error::Argument("expected at least one scorer, found none".into()));
        };
        if let Some(found) = parts.iter().map(|(part, _)| sizes(*part)).find(|found| *found != expected) {
            return Err(Error::Argument(format!(
                "expected scorers of {} entities and {} relations, found one of {} and {}",
                expected.0, expected.1, found.0, found.1
            )));
        }
        Ok(Self { parts })
    }

    fn fill(
        &self,
        scores: &mut [f32],
        ask: impl Fn(&dyn TripleScorer, &mut [f32]) -> Result<()>,
    ) -> Result<()> {
        let mut own = vec![0.0; scores.len()];
        scores.fill(0.0);
        let entities = self.entity_count().max(1);
        for (part, weight) in &self.parts {
            ask(*part, &mut own)?;
            for (row, sums) in own.chunks_exact(entities).zip(scores.chunks_exact_mut(entities)) {
                let (least, greatest) =
                    row.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |ends, &score| {
                        (ends.0.min(score), ends.1.max(score))
                    });
                let range = greatest - least;
                if range > 0.0 {
                    sums.iter_mut()
                        .zip(row)
                        .for_each(|(sum, score)| *sum += weight * (score - least) / range);
                }
            }
        }
        Ok(())
    }
}

impl TripleScorer for Mixture<'_> {
    fn entity_count(&self) -> usize {
        self.parts[0].0.entity_count()
    }

    fn relation_count(&self) -> usize {
        self.parts[0].0.relation_count()
    }

    fn score_objects(&self, questions: &[(EntityId, RelationId)], scores: &mut [f32]) -> Result<()> {
        self.fill(scores, |part, own| part.score_objects(questions, own))
    }

    fn score_subjects(&self, questions: &[(RelationId, EntityId)], scores: &mut [f32]) -> Result<()> {
        self.fill(scores, |part, own| part.score_subjects(questions, own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same scores for every question.
    struct Fixed(Vec<f32>);

    impl TripleScorer for Fixed {
        fn entity_count(&self) -> usize {
            self.0.len()
        }
        fn relation_count(&self) -> usize {
            1
        }
        fn score_objects(&self, questions: &[(EntityId, RelationId)], scores: &mut [f32]) -> Result<()> {
            assert_eq!(scores.len(), questions.len() * self.0.len());
            scores.chunks_exact_mut(self.0.len()).for_each(|row| row.copy_from_slice(&self.0));
            Ok(())
        }
        fn score_subjects(&self, questions: &[(RelationId, EntityId)], scores: &mut [f32]) -> Result<()> {
            let questions: Vec<_> = questions.iter().map(|&(relation, entity)| (entity, relation)).collect();
            self.score_objects(&questions, scores)
        }
    }

    #[test]
    fn scores_are_brought_to_one_scale_and_weighed() {
        let (logits, rules, nothing) =
            (Fixed(vec![-30.0, 10.0, 50.0]), Fixed(vec![0.0, 0.8, 0.4]), Fixed(vec![7.0; 3]));
        let mixture = Mixture::new(vec![(&logits, 0.5), (&rules, 0.25), (&nothing, 9.0)]).unwrap();
        let mut scores = vec![1.0; 6];
        mixture
            .score_objects(&[(EntityId(0), RelationId(0)), (EntityId(1), RelationId(0))], &mut scores)
            .unwrap();
        assert_eq!(scores, [0.0, 0.5, 0.625, 0.0, 0.5, 0.625]);
        mixture.score_subjects(&[(RelationId(0), EntityId(2))], &mut scores[..3]).unwrap();
        assert_eq!(scores[..3], [0.0, 0.5, 0.625]);
        let message = |parts| Mixture::new(parts).err().unwrap().to_string();
        assert!(message(vec![]).contains("found none"));
        assert!(message(vec![(&logits, 1.0), (&Fixed(vec![0.0]), 1.0)]).contains("found one of 1 and 1"));
    }
}
