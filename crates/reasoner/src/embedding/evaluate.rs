//! Link prediction: the rank of the right answer among all entities, known other answers left out.

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

/// Scores that are held at once.
const HELD: usize = 1 << 25;

/// The filtered rank of a triple's object and of its subject, counted from 1. Where entities score alike, each has the
/// mean of their places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranks {
    /// Of the object, given subject and relation.
    pub object: f64,
    /// Of the subject, given relation and object.
    pub subject: f64,
}

/// Means over ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkScores {
    /// The mean reciprocal rank.
    pub mrr: Measure,
    /// The share of ranks of 1 at most.
    #[serde(rename = "hits@1")]
    pub hits_at_1: Measure,
    /// The share of ranks of 3 at most.
    #[serde(rename = "hits@3")]
    pub hits_at_3: Measure,
    /// The share of ranks of 10 at most.
    #[serde(rename = "hits@10")]
    pub hits_at_10: Measure,
    /// The mean rank.
    pub mean_rank: Measure,
    /// How many ranks there are.
    pub ranks: usize,
}

impl LinkScores {
    /// Means over some ranks; nothing where there are none.
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

/// What link prediction scores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Over both directions.
    pub all: LinkScores,
    /// Of objects alone.
    pub objects: LinkScores,
    /// Of subjects alone.
    pub subjects: LinkScores,
    /// Over both directions, by the relation's name.
    pub relations: BTreeMap<String, LinkScores>,
}

/// Ranks every triple; `known` are triples that hold, whose answers do not count as wrong. What is published leaves out the
/// answers of all parts, whichever part is ranked (Bordes et al., 2013; LibKGE): a valid score that counts the test part's
/// answers as mistakes prefers models that do not find them.
///
/// # Errors
/// Those of the scorer.
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

/// What a triple asks for once one of its entities is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked {
    relation: RelationId,
    /// The entity that is left.
    entity: EntityId,
    /// Whether it is the subject that is asked for, not the object.
    subjects: bool,
}

impl Asked {
    fn of(triple: &Triple, subjects: bool) -> Self {
        let entity = if subjects { triple.object } else { triple.subject };
        Self { relation: triple.relation, entity, subjects }
    }

    /// The answers that `known` has.
    pub(super) fn known(self, known: &TripleIndex) -> &[EntityId] {
        if self.subjects {
            known.subjects(self.relation, self.entity)
        } else {
            known.objects(self.entity, self.relation)
        }
    }
}

/// Asks for every triple's object, or for its subject, and tells for each what `tell` makes of the question, some answers and
/// the scores of all entities: one value an answer. Equal questions are asked once.
pub(super) fn per_question<T: Send>(
    scorer: &dyn TripleScorer,
    triples: &[Triple],
    subjects: bool,
    tell: impl Fn(Asked, &[EntityId], &[f32]) -> Vec<T> + Sync,
) -> Result<Vec<T>> {
    let mut order: Vec<(Asked, usize)> =
        triples.iter().enumerate().map(|(at, triple)| (Asked::of(triple, subjects), at)).collect();
    order.sort_unstable();
    let groups: Vec<&[(Asked, usize)]> = order.chunk_by(|a, b| a.0 == b.0).collect();
    let entities = scorer.entity_count();
    let held = (HELD / entities.max(1)).clamp(1, groups.len().max(1));
    let mut scores = vec![0.0; held * entities];
    let mut told = Vec::with_capacity(triples.len());
    for groups in groups.chunks(held) {
        let scores = &mut scores[..groups.len() * entities];
        let asked = groups.iter().map(|group| group[0].0);
        if subjects {
            let asked: Vec<_> = asked.map(|asked| (asked.relation, asked.entity)).collect();
            scorer.score_subjects(&asked, scores)?;
        } else {
            let asked: Vec<_> = asked.map(|asked| (asked.entity, asked.relation)).collect();
            scorer.score_objects(&asked, scores)?;
        }
        let found: Vec<Vec<T>> = groups
            .par_iter()
            .zip(scores.par_chunks_exact(entities))
            .map(|(group, row)| {
                let answer = |at: usize| if subjects { triples[at].subject } else { triples[at].object };
                let answers: Vec<EntityId> = group.iter().map(|(_, at)| answer(*at)).collect();
                tell(group[0].0, &answers, row)
            })
            .collect();
        told.extend(found.into_iter().flatten());
    }
    let mut told: Vec<(usize, T)> = order.into_iter().map(|(_, at)| at).zip(told).collect();
    told.sort_unstable_by_key(|(at, _)| *at);
    Ok(told.into_iter().map(|(_, one)| one).collect())
}

/// The rank of `answer` in a row of scores, without `others`.
fn rank(row: &[f32], answer: EntityId, others: &[EntityId]) -> f64 {
    let own = row[answer.index()];
    if own.is_nan() {
        // What has no score stands last.
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

/// Ranks the triples and takes the means, over all and by relation.
///
/// # Errors
/// Those of the scorer.
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

    /// Scores by a formula.
    struct Formula;

    impl Formula {
        fn score(subject: u32, relation: u32, object: u32) -> f32 {
            // Few values, so that many entities score alike.
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
    fn ranks_are_mean_places_among_what_is_not_known() {
        let triples: Vec<Triple> = (0..12).map(|at| Triple::new(at * 3 % 10, at % 2, at * 7 % 10)).collect();
        let known = TripleIndex::new(&triples);
        let found = ranks(&Formula, &triples, &known).unwrap();
        for (triple, found) in triples.iter().zip(&found) {
            let Triple { subject, relation, object } = *triple;
            let own = Formula::score(subject.0, relation.0, object.0);
            // Sorted, the answer's equals have the places from the first to the last of them.
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
    fn an_answer_without_a_score_stands_last() {
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
