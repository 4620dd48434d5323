//! Rules as a scorer of triples, which can be evaluated and combined like embeddings.

use std::path::Path;

use rayon::prelude::*;
use sporran_kilt::kb::{EntityId, KnowledgeBase, Part, RelationId};

use super::{
    apply::{ApplyOptions, RuleBase},
    file::load,
    graph::Graph,
    rule::Side,
};
use crate::{Error, Result, embedding::TripleScorer};

/// Rules that score every entity of a knowledge base. Entities without a prediction get 0.
#[derive(Clone, Debug)]
pub struct RuleScorer {
    rules: RuleBase,
    entities: usize,
    relations: usize,
}

impl RuleScorer {
    /// A scorer with the ids of a knowledge base.
    pub fn new(rules: RuleBase, kb: &KnowledgeBase) -> Self {
        Self { rules, entities: kb.entity_count(), relations: kb.relation_count() }
    }

    /// Loads the rules of a file, over the training part of a knowledge base.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn open(path: &Path, kb: &KnowledgeBase) -> Result<Self> {
        let graph = Graph::of(kb.triples(Part::Train));
        Ok(Self::new(RuleBase::new(graph, load(path, kb)?, ApplyOptions::default()), kb))
    }

    /// The rules.
    pub fn rules(&self) -> &RuleBase {
        &self.rules
    }

    fn fill(&self, questions: &[(EntityId, RelationId)], unknown: Side, scores: &mut [f32]) -> Result<()> {
        if scores.len() != questions.len() * self.entities {
            let (places, entities, count) = (scores.len(), self.entities, questions.len());
            let message = format!("expected a buffer for {count} times {entities} scores, found {places}");
            return Err(Error::Argument(message));
        }
        for &(known, relation) in questions {
            self.check(known, relation)?;
        }
        scores.par_chunks_mut(self.entities.max(1)).zip(questions).for_each(|(row, (known, relation))| {
            row.copy_from_slice(&self.rules.scores(known.0, relation.0, unknown, self.entities));
        });
        Ok(())
    }

    fn check(&self, entity: EntityId, relation: RelationId) -> Result<()> {
        if entity.index() < self.entities && relation.index() < self.relations {
            return Ok(());
        }
        Err(Error::Argument(format!(
            "expected ids below {} (entities) and {} (relations), found {} and {}",
            self.entities, self.relations, entity.0, relation.0
        )))
    }
}

impl TripleScorer for RuleScorer {
    fn entity_count(&self) -> usize {
        self.entities
    }

    fn relation_count(&self) -> usize {
        self.relations
    }

    fn score_objects(&self, questions: &[(EntityId, RelationId)], scores: &mut [f32]) -> Result<()> {
        self.fill(questions, Side::Object, scores)
    }

    fn score_subjects(&self, questions: &[(RelationId, EntityId)], scores: &mut [f32]) -> Result<()> {
        let questions: Vec<(EntityId, RelationId)> =
            questions.iter().map(|&(relation, object)| (object, relation)).collect();
        self.fill(&questions, Side::Subject, scores)
    }
}

#[cfg(test)]
mod tests {
    use sporran_kilt::kb::{Part, Triple};

    use super::*;
    use crate::{
        embedding::ranks,
        rules::{ApplyOptions, Clause, Graph, Rule, Shape, Step},
    };

    #[test]
    fn rules_are_ranked_as_embeddings_are() {
        let mut kb = KnowledgeBase::default();
        for at in 0..5 {
            kb.add_entity(&format!("Q{at}")).unwrap();
        }
        for at in 0..2 {
            kb.add_relation(&format!("P{at}")).unwrap();
        }
        for triple in [Triple::new(0, 1, 3), Triple::new(1, 1, 3), Triple::new(1, 1, 4)] {
            kb.add(Part::Train, triple).unwrap();
        }
        let clause = Clause { relation: 0, shape: Shape::Cyclic, body: vec![Step::forward(1)] };
        let rule = Rule { clause, predicted: 2, support: 1, confidence: 0.5 };
        let base = RuleBase::new(Graph::of(kb.triples(Part::Train)), vec![rule], ApplyOptions::default());
        let scorer = RuleScorer::new(base, &kb);
        let asked = [Triple::new(1, 0, 3)];
        let found = ranks(&scorer, &asked, &kb.index(&[Part::Train])).unwrap();
        // 3 and 4 are predicted alike for 1, and 0 and 1 for 3.
        assert_eq!((found[0].object, found[0].subject), (1.5, 1.5));
        assert!(ranks(&scorer, &[Triple::new(9, 0, 3)], &kb.index(&[Part::Train])).is_err());
    }
}
