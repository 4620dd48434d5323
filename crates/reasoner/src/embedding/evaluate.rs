//! Link prediction: the rank of the correct answer among all entities, without other known answers.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sporran_kernels::{Isa, count_from};
use sporran_kilt::{
    kb::{EntityId, KnowledgeBase, RelationId, Triple, TripleIndex},
    scores::Measure,
};

use super::scorer::TripleScorer;
use crate::Result;

/// The largest number of scores held in memory at once.
const HELD: usize = 1 << 25;

/// The filtered ranks of a triple's object and subject, counted from 1. Entities with equal scores share the
/// mean of their ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranks {
    /// The rank of the object, given subject and relation.
    pub object: f64,
    /// The rank of the subject, given relation and object.
    pub subject: f64,
}

/// Means over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkScores {
    /// The mean reciprocal rank.
    pub mrr: Measure,
    /// The share of ranks of at most 1.
    #[serde(rename = "hits@1")]
    pub hits_at_1: Measure,
    /// The share of ranks of at most 3.
    #[serde(rename = "hits@3")]
    pub hits_at_3: Measure,
    /// The share of ranks of at most 10.
    #[serde(rename = "hits@10")]
    pub hits_at_10: Measure,
    /// The mean rank.
    pub mean_rank: Measure,
    /// The number of ranks.
    pub ranks: usize,
}

impl LinkScores {
    /// Computes the means. They are empty without ranks.
    pub fn of(ranks: impl IntoIterator<Item = f64>) -> Self {
        let ranks: Vec<f64> = ranks.into_iter().collect();
        let mean = |score: &dyn Fn(f64) -> f64| Measure::mean(ranks.iter().map(|rank| score(*rank)));
        let within = |bound: f64| mean(&|rank| f64::from(u8::from(rank <= bound)));
        Self {
            mrr: mean(&|rank| 1.0 / rank),
            hits_at_1: within(1.0),
            hits_at_3: within(3.0),
            hits_at_10: within(10.0),
            mean_rank: mean(&|rank| rank),
            ranks: ranks.len(),
        }
    }
}

/// The link-prediction scores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Over both directions.
    pub all: LinkScores,
    /// For objects alone.
    pub objects: LinkScores,
    /// For subjects alone.
    pub subjects: LinkScores,
    /// Over both directions, by the relation's name.
    pub relations: BTreeMap<String, LinkScores>,
}

/// Ranks the answers of every triple. `known` are triples that hold; their answers do not count as wrong.
/// Published evaluations filter the answers of all parts for every ranked part (Bordes et al., 2013;
/// LibKGE). A validation score that counts the test part's answers as mistakes prefers models that do not
/// predict them.
///
/// # Errors
/// Errors of the scorer.
pub fn ranks(scorer: &dyn TripleScorer, triples: &[Triple], known: &TripleIndex) -> Result<Vec<Ranks>> {
    let of = |subjects: bool| {
        per_question(scorer, triples, subjects, |question, answers, row| {
            let others = question.known(known);
            answers.iter().map(|answer| rank(row, *answer, others)).collect()
        })
    };
    let (objects, subjects) = (of(false)?, of(true)?);
    Ok(objects.into_iter().zip(subjects).map(|(object, subject)| Ranks { object, subject }).collect())
}

/// A question: a triple without one of its entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkQuestion {
    relation: RelationId,
    /// The given entity.
    entity: EntityId,
    /// Whether the question is for the subject rather than the object.
    subjects: bool,
}

impl LinkQuestion {
    fn of(triple: &Triple, subjects: bool) -> Self {
        let entity = if subjects { triple.object } else { triple.subject };
        Self { relation: triple.relation, entity, subjects }
    }

    /// The answers in `known`.
    pub(super) fn known(self, known: &TripleIndex) -> &[EntityId] {
        if self.subjects {
            known.subjects(self.relation, self.entity)
        } else {
            known.objects(self.entity, self.relation)
        }
    }
}

/// Scores every triple's question for the object, or for the subject. Calls `evaluate` with each different
/// question, its answers and the scores of all entities. Returns one value an answer, in the order of the
/// triples.
pub(super) fn per_question<T: Send>(
    scorer: &dyn TripleScorer,
    triples: &[Triple],
    subjects: bool,
    evaluate: impl Fn(LinkQuestion, &[EntityId], &[f32]) -> Vec<T> + Sync,
) -> Result<Vec<T>> {
    let mut order: Vec<(LinkQuestion, usize)> = triples
        .iter()
        .enumerate()
        .map(|(index, triple)| (LinkQuestion::of(triple, subjects), index))
        .collect();
    order.sort_unstable();
    let groups: Vec<&[(LinkQuestion, usize)]> = order.chunk_by(|a, b| a.0 == b.0).collect();
    let entities = scorer.entity_count();
    let held = (HELD / entities.max(1)).clamp(1, groups.len().max(1));
    let mut scores = vec![0.0; held * entities];
    let mut values = Vec::with_capacity(triples.len());
    for groups in groups.chunks(held) {
        let scores = &mut scores[..groups.len() * entities];
        let questions = groups.iter().map(|group| group[0].0);
        if subjects {
            let questions: Vec<_> = questions.map(|question| (question.relation, question.entity)).collect();
            scorer.score_subjects(&questions, scores)?;
        } else {
            let questions: Vec<_> = questions.map(|question| (question.entity, question.relation)).collect();
            scorer.score_objects(&questions, scores)?;
        }
        let results: Vec<Vec<T>> = groups
            .par_iter()
            .zip(scores.par_chunks_exact(entities))
            .map(|(group, row)| {
                let answer =
                    |index: usize| if subjects { triples[index].subject } else { triples[index].object };
                let answers: Vec<EntityId> = group.iter().map(|(_, index)| answer(*index)).collect();
                evaluate(group[0].0, &answers, row)
            })
            .collect();
        values.extend(results.into_iter().flatten());
    }
    let mut values: Vec<(usize, T)> = order.into_iter().map(|(_, index)| index).zip(values).collect();
    values.sort_unstable_by_key(|(index, _)| *index);
    Ok(values.into_iter().map(|(_, value)| value).collect())
}

/// The rank of `answer` in a row of scores, without `others`.
fn rank(row: &[f32], answer: EntityId, others: &[EntityId]) -> f64 {
    let own = row[answer.index()];
    if own.is_nan() {
        // An answer without a score is last.
        return (row.len() - others.iter().filter(|other| **other != answer).count()) as f64;
    }
    let (mut greater, mut equal) = count_from(Isa::detected(), row, own);
    for other in others.iter().filter(|other| **other != answer) {
        let score = row[other.index()];
        greater -= usize::from(score > own);
        equal -= usize::from(score == own);
    }
    greater as f64 + (equal as f64 + 1.0) / 2.0
}

/// Ranks the triples and computes the means, over all and by relation.
///
/// # Errors
/// Errors of the scorer.
pub fn evaluate(
    scorer: &dyn TripleScorer,
    kb: &KnowledgeBase,
    triples: &[Triple],
    known: &TripleIndex,
) -> Result<LinkReport> {
    let ranks = ranks(scorer, triples, known)?;
    let mut by_relation: BTreeMap<RelationId, Vec<f64>> = BTreeMap::new();
    for (triple, ranks) in triples.iter().zip(&ranks) {
        by_relation.entry(triple.relation).or_default().extend([ranks.object, ranks.subject]);
    }
    let relations = by_relation
        .into_iter()
        .map(|(relation, ranks)| (kb.relation_name(relation).to_owned(), LinkScores::of(ranks)))
        .collect();
    Ok(LinkReport {
        all: LinkScores::of(ranks.iter().flat_map(|ranks| [ranks.object, ranks.subject])),
        objects: LinkScores::of(ranks.iter().map(|ranks| ranks.object)),
        subjects: LinkScores::of(ranks.iter().map(|ranks| ranks.subject)),
        relations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scorer with a fixed formula.
    struct Formula;

    impl Formula {
        fn score(subject: u32, relation: u32, object: u32) -> f32 {
            // Few different values, so that many entities have equal scores.
            ((subject * 7 + relation * 3 + object * 5) % 4) as f32
        }
    }

    impl TripleScorer for Formula {
        fn entity_count(&self) -> usize {
            10
        }
        fn relation_count(&self) -> usize {
            2
        }
        fn score_objects(&self, questions: &[(EntityId, RelationId)], scores: &mut [f32]) -> Result<()> {
            for ((subject, relation), row) in questions.iter().zip(scores.chunks_exact_mut(10)) {
                (0..10).for_each(|object| row[object as usize] = Self::score(subject.0, relation.0, object));
            }
            Ok(())
        }
        fn score_subjects(&self, questions: &[(RelationId, EntityId)], scores: &mut [f32]) -> Result<()> {
            for ((relation, object), row) in questions.iter().zip(scores.chunks_exact_mut(10)) {
                (0..10)
                    .for_each(|subject| row[subject as usize] = Self::score(subject, relation.0, object.0));
            }
            Ok(())
        }
    }

    #[test]
    fn ranks_are_filtered_mean_ranks() {
        let triples: Vec<Triple> = (0..12).map(|at| Triple::new(at * 3 % 10, at % 2, at * 7 % 10)).collect();
        let known = TripleIndex::new(&triples);
        let found = ranks(&Formula, &triples, &known).unwrap();
        for (triple, found) in triples.iter().zip(&found) {
            let Triple { subject, relation, object } = *triple;
            let own = Formula::score(subject.0, relation.0, object.0);
            // After sorting, equal scores have consecutive ranks.
            let place = |scores: Vec<f32>| {
                let above = scores.iter().filter(|score| **score > own).count() as f64;
                let equal = scores.iter().filter(|score| **score == own).count() as f64;
                above + (1.0 + equal) / 2.0
            };
            let objects = (0..10)
                .map(EntityId)
                .filter(|e| *e == object || !known.contains(Triple { object: *e, ..*triple }));
            let subjects = (0..10)
                .map(EntityId)
                .filter(|e| *e == subject || !known.contains(Triple { subject: *e, ..*triple }));
            assert_eq!(
                found.object,
                place(objects.map(|e| Formula::score(subject.0, relation.0, e.0)).collect())
            );
            assert_eq!(
                found.subject,
                place(subjects.map(|e| Formula::score(e.0, relation.0, object.0)).collect())
            );
        }
    }

    #[test]
    fn an_answer_without_a_score_ranks_last() {
        let row = [1.0, f32::NAN, 2.0, 0.0];
        assert_eq!(rank(&row, EntityId(1), &[EntityId(1), EntityId(2)]), 3.0);
        assert_eq!(rank(&row, EntityId(0), &[EntityId(2)]), 1.0);
    }

    #[test]
    fn means_are_over_all_ranks() {
        let scores = LinkScores::of([1.0, 2.0, 4.0, 20.0]);
        assert!((scores.mrr.or_zero() - (1.0 + 0.5 + 0.25 + 0.05) / 4.0).abs() < 1e-12);
        assert_eq!(
            [scores.hits_at_1, scores.hits_at_3, scores.hits_at_10],
            [0.25, 0.5, 0.75].map(Measure::from)
        );
        assert_eq!((scores.mean_rank, scores.ranks), (6.75.into(), 4));
        assert_eq!(LinkScores::of([]), LinkScores::default());
    }
}
