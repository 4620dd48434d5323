//! Triple classification: whether a triple holds, by a threshold for each relation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sporran_kilt::kb::{KnowledgeBase, Part, RelationId, Triple};

use super::scorer::TripleScorer;
use crate::{Error, Result};

/// What triple classification scores on the test part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassificationReport {
    /// The share of triples and negatives that were told rightly.
    pub accuracy: f64,
    /// The harmonic mean of precision and recall of what was said to hold.
    pub f1: f64,
    /// On the valid part, which the thresholds were chosen on.
    pub valid_accuracy: f64,
    /// Triples and negatives that were told.
    pub triples: usize,
    /// By the relation's name.
    pub relations: BTreeMap<String, RelationAccuracy>,
}

/// One relation's share of a [`ClassificationReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RelationAccuracy {
    /// A triple holds if its score is at least this.
    pub threshold: f32,
    /// The share that was told rightly.
    pub accuracy: f64,
    /// Triples and negatives of the test part.
    pub triples: usize,
}

/// A triple's relation and score, and whether it holds.
type Judged = (RelationId, f32, bool);

fn judged(scorer: &dyn TripleScorer, kb: &KnowledgeBase, part: Part) -> Result<Vec<Judged>> {
    let (triples, negatives) = (kb.triples(part), kb.negatives(part));
    if triples.is_empty() || negatives.is_empty() {
        return Err(Error::Argument(format!(
            "expected triples and hard negatives (`{0}_negatives.txt`) in the part `{0}`, found {1} and {2}",
            part.name(),
            triples.len(),
            negatives.len()
        )));
    }
    let all: Vec<Triple> = triples.iter().chain(negatives).copied().collect();
    let scores = scorer.score_triples(&all)?;
    let holds = |at: usize| at < triples.len();
    Ok(all.iter().zip(scores).enumerate().map(|(at, (t, score))| (t.relation, score, holds(at))).collect())
}

/// The threshold that tells most of these rightly: half-way between two neighbouring scores, the lowest of equally good
/// ones.
fn threshold(judged: &[Judged]) -> f32 {
    let mut sorted: Vec<(f32, bool)> = judged.iter().map(|(_, score, holds)| (*score, *holds)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    // Below the lowest score everything holds.
    let mut right = sorted.iter().filter(|(_, holds)| *holds).count() as i64;
    let mut best = (right, f32::NEG_INFINITY);
    for (at, (score, holds)) in sorted.iter().enumerate() {
        right += if *holds { -1 } else { 1 };
        let next = sorted.get(at + 1).map(|(score, _)| *score);
        if next != Some(*score) && right > best.0 {
            best = (right, next.map_or(f32::INFINITY, |next| score + (next - score) / 2.0));
        }
    }
    best.1
}

/// Chooses thresholds on the valid part's triples and hard negatives and tells those of the test part. A relation that the
/// valid part lacks goes by the threshold over all.
///
/// # Errors
/// Those of the scorer; [`Error::Argument`] without hard negatives.
pub fn classify(scorer: &dyn TripleScorer, kb: &KnowledgeBase) -> Result<ClassificationReport> {
    let (valid, test) = (judged(scorer, kb, Part::Valid)?, judged(scorer, kb, Part::Test)?);
    let of = |judged: &[Judged]| {
        let mut by: BTreeMap<RelationId, Vec<Judged>> = BTreeMap::new();
        judged.iter().for_each(|one| by.entry(one.0).or_default().push(*one));
        by
    };
    let common = threshold(&valid);
    let thresholds: BTreeMap<RelationId, f32> =
        of(&valid).into_iter().map(|(relation, judged)| (relation, threshold(&judged))).collect();
    let bound = |relation: RelationId| thresholds.get(&relation).copied().unwrap_or(common);
    let told = |one: &&Judged| (one.1 >= bound(one.0)) == one.2;
    let accuracy = |judged: &[Judged]| judged.iter().filter(told).count() as f64 / judged.len() as f64;
    let said = test.iter().filter(|one| one.1 >= bound(one.0)).count() as f64;
    let hold = test.iter().filter(|one| one.2).count() as f64;
    let both = test.iter().filter(|one| one.2 && one.1 >= bound(one.0)).count() as f64;
    let relations = of(&test)
        .into_iter()
        .map(|(relation, judged)| {
            let threshold = bound(relation);
            let report = RelationAccuracy { threshold, accuracy: accuracy(&judged), triples: judged.len() };
            (kb.relation_name(relation).to_owned(), report)
        })
        .collect();
    Ok(ClassificationReport {
        accuracy: accuracy(&test),
        f1: 2.0 * both / (said + hold),
        valid_accuracy: accuracy(&valid),
        triples: test.len(),
        relations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(scores: &[(f32, bool)]) -> Vec<Judged> {
        scores.iter().map(|(score, holds)| (RelationId(0), *score, *holds)).collect()
    }

    #[test]
    fn a_threshold_tells_as_many_rightly_as_any_other() {
        let cases: [&[(f32, bool)]; 5] = [
            &[(1.0, false), (2.0, true), (3.0, true)],
            &[(1.0, true), (2.0, false), (3.0, false)],
            &[(1.0, false), (1.0, true), (1.0, true), (0.0, true), (5.0, false)],
            &[(2.0, true)],
            &[(2.0, false)],
        ];
        for case in cases {
            let case = judged(case);
            let right = |bound: f32| case.iter().filter(|one| (one.1 >= bound) == one.2).count();
            let best = [-1.0, 0.5, 1.5, 2.5, 4.0, 9.0].map(right).into_iter().max().unwrap();
            assert_eq!(right(threshold(&case)), best, "{case:?} {}", threshold(&case));
        }
        assert_eq!(threshold(&judged(&[(1.0, false), (2.0, true)])), 1.5);
    }
}
