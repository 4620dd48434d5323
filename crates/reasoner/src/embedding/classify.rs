//! Triple classification: whether a triple holds, by a threshold for each relation.

use std::{cell::LazyCell, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use sporran_kernels::{Isa, exp_sum, max};
use sporran_kilt::kb::{EntityId, KnowledgeBase, Part, RelationId, Triple, TripleIndex};

use super::{evaluate::per_question, scorer::TripleScorer};
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
    /// Whether probabilities are among all entities, those that training knows as answers with them.
    pub against_known: bool,
    /// Triples and negatives that were told.
    pub triples: usize,
    /// By the relation's name.
    pub relations: BTreeMap<String, RelationAccuracy>,
}

/// One relation's share of a [`ClassificationReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RelationAccuracy {
    /// A triple holds if its log-probability is at least this.
    pub threshold: f32,
    /// The share that was told rightly.
    pub accuracy: f64,
    /// Triples and negatives of the test part.
    pub triples: usize,
}

/// How probable a triple is, where scores themselves compare within a question alone: the mean, over its two questions, of the
/// logarithm of its answer's share of the softmax.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProbability {
    /// Among all entities.
    pub among_all: f32,
    /// Among those that are not known as answers, from which what is known to hold takes nothing.
    pub among_unknown: f32,
}

/// The log-probability of each triple; `known` are triples that hold.
///
/// # Errors
/// Those of the scorer.
pub fn log_probabilities(
    scorer: &dyn TripleScorer,
    triples: &[Triple],
    known: &TripleIndex,
) -> Result<Vec<LogProbability>> {
    let of = |subjects: bool| {
        per_question(scorer, triples, subjects, |question, answers, row| {
            let known = question.known(known);
            let mut unknown = row.to_vec();
            known.iter().for_each(|entity| unknown[entity.index()] = f32::NEG_INFINITY);
            let (all, unknown) = (log_sum_exp(row), log_sum_exp(&unknown));
            let told = |answer: &EntityId| {
                let score = f64::from(row[answer.index()]);
                let unknown = match known.binary_search(answer) {
                    Ok(_) => log_add_exp(unknown, score),
                    Err(_) => unknown,
                };
                [(score - all) as f32, (score - unknown) as f32]
            };
            answers.iter().map(told).collect()
        })
    };
    let mean = |([all, unknown], [all_too, unknown_too]): ([f32; 2], [f32; 2])| LogProbability {
        among_all: f32::midpoint(all, all_too),
        among_unknown: f32::midpoint(unknown, unknown_too),
    };
    Ok(of(false)?.into_iter().zip(of(true)?).map(mean).collect())
}

fn log_sum_exp(row: &[f32]) -> f64 {
    let greatest = max(Isa::detected(), row);
    if greatest == f32::NEG_INFINITY {
        // Nothing is unknown.
        return f64::NEG_INFINITY;
    }
    f64::from(greatest) + exp_sum(Isa::detected(), row, greatest).ln()
}

fn log_add_exp(a: f64, b: f64) -> f64 {
    let greatest = a.max(b);
    greatest + ((a - greatest).exp() + (b - greatest).exp()).ln()
}

/// A triple's relation and log-probability, and whether it holds.
type Judged = (RelationId, f32, bool);

/// How much the threshold's surroundings count: this share of the deviation of all log-probabilities.
const BANDWIDTH: f32 = 0.1;

/// A part's triples and hard negatives with their log-probabilities, and whether they hold.
fn told(
    scorer: &dyn TripleScorer,
    kb: &KnowledgeBase,
    part: Part,
) -> Result<Vec<(Triple, LogProbability, bool)>> {
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
    let told = log_probabilities(scorer, &all, &kb.index(&[Part::Train]))?;
    let holds = |at: usize| at < triples.len();
    Ok(all.into_iter().zip(told).enumerate().map(|(at, (triple, told))| (triple, told, holds(at))).collect())
}

/// The standard deviation of the log-probabilities.
fn deviation(judged: &[Judged]) -> f32 {
    let count = judged.len() as f64;
    let mean = judged.iter().map(|one| f64::from(one.1)).sum::<f64>() / count;
    let squares = judged.iter().map(|one| (f64::from(one.1) - mean).powi(2));
    (squares.sum::<f64>() / count).sqrt() as f32
}

/// The threshold that tells most of these rightly, where one within `bandwidth` of it counts in part, by the logistic function
/// of its distance: few triples of a relation say little of where exactly the best place is. It is half-way between two
/// neighbouring values, the lowest of equally good ones.
fn threshold(judged: &[Judged], bandwidth: f32) -> f32 {
    let right = |threshold: f32| -> f64 {
        let above = |told: f32| f64::from((told - threshold) / bandwidth);
        let share =
            |&(_, told, holds): &Judged| 1.0 / (1.0 + if holds { -above(told) } else { above(told) }.exp());
        judged.iter().map(share).sum()
    };
    let mut told: Vec<f32> = judged.iter().map(|one| one.1).collect();
    told.sort_by(f32::total_cmp);
    let between =
        told.windows(2).filter(|pair| pair[0] < pair[1]).map(|pair| f32::midpoint(pair[0], pair[1]));
    let places = std::iter::once(f32::NEG_INFINITY).chain(between).chain([f32::INFINITY]);
    let better = |best: (f64, f32), place: f32| {
        let right = right(place);
        if right > best.0 { (right, place) } else { best }
    };
    places.fold((f64::NEG_INFINITY, f32::NEG_INFINITY), better).1
}

/// What tells triples: a threshold for each relation.
struct Thresholds(BTreeMap<RelationId, f32>);

impl Thresholds {
    /// Chosen on `valid`; a relation of `test` that it lacks goes by the threshold over all.
    fn choose(valid: &[Judged], test: &[Judged]) -> Self {
        let bandwidth = (BANDWIDTH * deviation(valid)).max(f32::MIN_POSITIVE);
        let common = LazyCell::new(|| threshold(valid, bandwidth));
        let mut thresholds: BTreeMap<RelationId, f32> = by_relation(valid)
            .into_iter()
            .map(|(relation, judged)| (relation, threshold(&judged, bandwidth)))
            .collect();
        for (relation, ..) in test {
            thresholds.entry(*relation).or_insert_with(|| *common);
        }
        Self(thresholds)
    }

    fn holds(&self, (relation, told, _): &Judged) -> bool {
        *told >= self.0[relation]
    }

    fn accuracy(&self, judged: &[Judged]) -> f64 {
        judged.iter().filter(|one| self.holds(one) == one.2).count() as f64 / judged.len() as f64
    }
}

fn by_relation(judged: &[Judged]) -> BTreeMap<RelationId, Vec<Judged>> {
    let mut by: BTreeMap<RelationId, Vec<Judged>> = BTreeMap::new();
    judged.iter().for_each(|one| by.entry(one.0).or_default().push(*one));
    by
}

/// Tells the test part's triples and hard negatives by log-probabilities ([`log_probabilities`]) and a threshold a relation,
/// chosen on the valid part's. Whether a triple stands against all entities or only against those that training does not know
/// as answers is chosen there too, by accuracy.
///
/// # Errors
/// Those of the scorer; [`Error::Argument`] without hard negatives.
pub fn classify(scorer: &dyn TripleScorer, kb: &KnowledgeBase) -> Result<ClassificationReport> {
    let (valid, test) = (told(scorer, kb, Part::Valid)?, told(scorer, kb, Part::Test)?);
    let report = |against_known: bool| {
        let judged = |part: &[(Triple, LogProbability, bool)]| -> Vec<Judged> {
            let one = |told: LogProbability| if against_known { told.among_all } else { told.among_unknown };
            part.iter().map(|&(triple, told, holds)| (triple.relation, one(told), holds)).collect()
        };
        let (valid, test) = (judged(&valid), judged(&test));
        let thresholds = Thresholds::choose(&valid, &test);
        let said = test.iter().filter(|one| thresholds.holds(one)).count() as f64;
        let hold = test.iter().filter(|one| one.2).count() as f64;
        let both = test.iter().filter(|one| one.2 && thresholds.holds(one)).count() as f64;
        let relations = by_relation(&test).into_iter().map(|(relation, judged)| {
            let report = RelationAccuracy {
                threshold: thresholds.0[&relation],
                accuracy: thresholds.accuracy(&judged),
                triples: judged.len(),
            };
            (kb.relation_name(relation).to_owned(), report)
        });
        ClassificationReport {
            accuracy: thresholds.accuracy(&test),
            f1: 2.0 * both / (said + hold),
            valid_accuracy: thresholds.accuracy(&valid),
            against_known,
            triples: test.len(),
            relations: relations.collect(),
        }
    };
    let (all, unknown) = (report(true), report(false));
    Ok(if all.valid_accuracy > unknown.valid_accuracy { all } else { unknown })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(scores: &[(f32, bool)]) -> Vec<Judged> {
        scores.iter().map(|(score, holds)| (RelationId(0), *score, *holds)).collect()
    }

    /// A triple scores the more the nearer its object is to its subject.
    struct Near;

    impl TripleScorer for Near {
        fn entity_count(&self) -> usize {
            4
        }
        fn relation_count(&self) -> usize {
            1
        }
        fn score_objects(&self, questions: &[(EntityId, RelationId)], scores: &mut [f32]) -> Result<()> {
            for (question, row) in questions.iter().zip(scores.chunks_exact_mut(4)) {
                (0..4).for_each(|at| row[at as usize] = -200.0 * (question.0.0 as f32 - at as f32).abs());
            }
            Ok(())
        }
        fn score_subjects(&self, questions: &[(RelationId, EntityId)], scores: &mut [f32]) -> Result<()> {
            let questions: Vec<_> = questions.iter().map(|&(relation, object)| (object, relation)).collect();
            self.score_objects(&questions, scores)
        }
    }

    #[test]
    fn log_probabilities_are_among_what_is_not_known() {
        let known = TripleIndex::new(&[Triple::new(1, 0, 1), Triple::new(3, 0, 1)]);
        let asked = [Triple::new(1, 0, 2), Triple::new(1, 0, 3), Triple::new(1, 0, 1), Triple::new(0, 0, 2)];
        let found = log_probabilities(&Near, &asked, &known).unwrap();
        // Of 1, which is known to stand near itself, 0 and 2 are alike; of 2, only 2 is nearer. However much better what is
        // known scores, or worse, chances stay finite.
        let half = 0.5_f32.ln();
        let expected = [(half - 200.0) / 2.0, (half - 200.0 - 400.0) / 2.0, 0.0, -400.0];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found.among_unknown - expected).abs() < 1e-3, "{found:?} {expected}");
        }
        // Where all others are known, what is left is certain.
        let known = TripleIndex::new(&[0, 1, 2, 3].map(|object| Triple::new(0, 0, object)));
        let certain = log_probabilities(&Near, &[Triple::new(0, 0, 3)], &known).unwrap()[0];
        assert!(
            certain.among_unknown.is_finite() && certain.among_unknown > certain.among_all,
            "{certain:?}"
        );
        // Among all, nothing is nearer than an entity itself.
        assert!((found[0].among_all + 200.0).abs() < 1e-3 && found[2].among_all.abs() < 1e-3, "{found:?}");
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
            assert_eq!(right(threshold(&case, 1e-3)), best, "{case:?} {}", threshold(&case, 1e-3));
        }
        assert_eq!(threshold(&judged(&[(1.0, false), (2.0, true)]), 1e-3), 1.5);
        // Two places tell three of four rightly; the second is further from them.
        let two = judged(&[(0.0, false), (1.0, true), (1.5, false), (3.0, true)]);
        assert_eq!([1e-3, 0.3].map(|bandwidth| threshold(&two, bandwidth)), [0.5, 2.25]);
    }
}
