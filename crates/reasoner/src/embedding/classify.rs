//! Triple classification: whether a triple holds, by a threshold for each relation.

use std::{cell::LazyCell, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use sporran_kernels::{Isa, exp_sum, max};
use sporran_kilt::kb::{EntityId, KnowledgeBase, Part, RelationId, Triple, TripleIndex};

use super::{evaluate::per_question, scorer::TripleScorer};
use crate::{Error, Result};

/// Triple classification scores on the test part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassificationReport {
    /// The share of triples and negatives that are classified correctly.
    pub accuracy: f64,
    /// The harmonic mean of precision and recall of the triples that are predicted to hold.
    pub f1: f64,
    /// The accuracy on the validation part, which selects the thresholds.
    pub valid_accuracy: f64,
    /// Whether the softmax is over all entities, including the answers known from training.
    pub against_known: bool,
    /// The number of triples and negatives that were classified.
    pub triples: usize,
    /// By the relation's name.
    pub relations: BTreeMap<String, RelationAccuracy>,
}

/// One relation's share of a [`ClassificationReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RelationAccuracy {
    /// A triple is predicted to hold if its log-probability is at least this. [`f32::MIN`] stands for all triples and [`f32::MAX`]
    /// for none; in JSON they are `"all"` and `"none"`.
    #[serde(with = "ends")]
    pub threshold: f32,
    /// The share that is classified correctly.
    pub accuracy: f64,
    /// The number of triples and negatives in the test part.
    pub triples: usize,
}

/// A threshold as a number, `"all"` or `"none"`.
mod ends {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    const ALL: &str = "all";
    const NONE: &str = "none";

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(f32),
        Word(String),
    }

    pub(super) fn serialize<S: Serializer>(threshold: &f32, serializer: S) -> Result<S::Ok, S::Error> {
        if *threshold == f32::MIN {
            serializer.serialize_str(ALL)
        } else if *threshold == f32::MAX {
            serializer.serialize_str(NONE)
        } else {
            serializer.serialize_f32(*threshold)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(number),
            Written::Word(word) if word == ALL => Ok(f32::MIN),
            Written::Word(word) if word == NONE => Ok(f32::MAX),
            Written::Word(word) => {
                Err(D::Error::custom(format!("expected a number, `{ALL}` or `{NONE}`, found `{word}`")))
            }
        }
    }
}

/// The log-probability of a triple. Raw scores are comparable within one question only. So this is the mean
/// over the triple's two questions of the log-softmax of its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProbability {
    /// Over all entities.
    pub among_all: f32,
    /// Over the entities that are not known answers, so that known answers take no probability mass.
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
            let log_probability = |answer: &EntityId| {
                let score = f64::from(row[answer.index()]);
                let unknown = match known.binary_search(answer) {
                    Ok(_) => log_add_exp(unknown, score),
                    Err(_) => unknown,
                };
                [(score - all) as f32, (score - unknown) as f32]
            };
            answers.iter().map(log_probability).collect()
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
        // Every entity is a known answer.
        return f64::NEG_INFINITY;
    }
    f64::from(greatest) + exp_sum(Isa::detected(), row, greatest).ln()
}

fn log_add_exp(a: f64, b: f64) -> f64 {
    let greatest = a.max(b);
    greatest + ((a - greatest).exp() + (b - greatest).exp()).ln()
}

/// A triple's relation, its log-probability, and whether it holds.
type Labelled = (RelationId, f32, bool);

/// The smoothing bandwidth of the threshold, as a share of the standard deviation of all log-probabilities.
const BANDWIDTH: f32 = 0.1;

/// The log-probabilities of a part's triples and hard negatives, and whether each holds.
fn labelled(
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
    let probabilities = log_probabilities(scorer, &all, &kb.index(&[Part::Train]))?;
    let holds = |index: usize| index < triples.len();
    Ok(all
        .into_iter()
        .zip(probabilities)
        .enumerate()
        .map(|(index, (triple, probability))| (triple, probability, holds(index)))
        .collect())
}

/// The standard deviation of the log-probabilities.
fn deviation(examples: &[Labelled]) -> f32 {
    let count = examples.len() as f64;
    let mean = examples.iter().map(|one| f64::from(one.1)).sum::<f64>() / count;
    let squares = examples.iter().map(|one| (f64::from(one.1) - mean).powi(2));
    (squares.sum::<f64>() / count).sqrt() as f32
}

/// The threshold with the most correct classifications. An example within about `bandwidth` of the threshold
/// counts in part, by the logistic function of its distance, because a relation with few triples determines
/// its threshold poorly. The result is the midpoint of two neighbouring values, the lowest of equally good
/// ones.
fn threshold(examples: &[Labelled], bandwidth: f32) -> f32 {
    let right = |threshold: f32| -> f64 {
        let above = |value: f32| f64::from((value - threshold) / bandwidth);
        let share = |&(_, value, holds): &Labelled| {
            1.0 / (1.0 + if holds { -above(value) } else { above(value) }.exp())
        };
        examples.iter().map(share).sum()
    };
    let mut values: Vec<f32> = examples.iter().map(|one| one.1).collect();
    values.sort_by(f32::total_cmp);
    let between =
        values.windows(2).filter(|pair| pair[0] < pair[1]).map(|pair| f32::midpoint(pair[0], pair[1]));
    // The ends are finite, because JSON has no infinities.
    let candidates = std::iter::once(f32::MIN).chain(between).chain([f32::MAX]);
    let better = |best: (f64, f32), threshold: f32| {
        let right = right(threshold);
        if right > best.0 { (right, threshold) } else { best }
    };
    candidates.fold((f64::NEG_INFINITY, f32::MIN), better).1
}

/// The classification threshold of each relation.
struct Thresholds(BTreeMap<RelationId, f32>);

impl Thresholds {
    /// Chooses thresholds on `valid`. A relation that only `test` contains uses the threshold of all
    /// relations.
    fn choose(valid: &[Labelled], test: &[Labelled]) -> Self {
        let bandwidth = (BANDWIDTH * deviation(valid)).max(f32::MIN_POSITIVE);
        let common = LazyCell::new(|| threshold(valid, bandwidth));
        let mut thresholds: BTreeMap<RelationId, f32> = by_relation(valid)
            .into_iter()
            .map(|(relation, examples)| (relation, threshold(&examples, bandwidth)))
            .collect();
        for (relation, ..) in test {
            thresholds.entry(*relation).or_insert_with(|| *common);
        }
        Self(thresholds)
    }

    fn holds(&self, (relation, value, _): &Labelled) -> bool {
        *value >= self.0[relation]
    }

    fn accuracy(&self, examples: &[Labelled]) -> f64 {
        examples.iter().filter(|one| self.holds(one) == one.2).count() as f64 / examples.len() as f64
    }
}

fn by_relation(examples: &[Labelled]) -> BTreeMap<RelationId, Vec<Labelled>> {
    let mut relations: BTreeMap<RelationId, Vec<Labelled>> = BTreeMap::new();
    examples.iter().for_each(|one| relations.entry(one.0).or_default().push(*one));
    relations
}

/// Classifies the test part's triples and hard negatives. Each relation has a threshold on the
/// log-probabilities ([`log_probabilities`]), chosen on the validation part. Accuracy on that part also
/// decides whether the softmax includes the answers known from training.
///
/// # Errors
/// Errors of the scorer; [`Error::Argument`] without hard negatives.
pub fn classify(scorer: &dyn TripleScorer, kb: &KnowledgeBase) -> Result<ClassificationReport> {
    let (valid, test) = (labelled(scorer, kb, Part::Valid)?, labelled(scorer, kb, Part::Test)?);
    let report = |against_known: bool| {
        let examples = |part: &[(Triple, LogProbability, bool)]| -> Vec<Labelled> {
            let one = |probability: LogProbability| {
                if against_known { probability.among_all } else { probability.among_unknown }
            };
            part.iter()
                .map(|&(triple, probability, holds)| (triple.relation, one(probability), holds))
                .collect()
        };
        let (valid, test) = (examples(&valid), examples(&test));
        let thresholds = Thresholds::choose(&valid, &test);
        let predicted = test.iter().filter(|one| thresholds.holds(one)).count() as f64;
        let hold = test.iter().filter(|one| one.2).count() as f64;
        let both = test.iter().filter(|one| one.2 && thresholds.holds(one)).count() as f64;
        let relations = by_relation(&test).into_iter().map(|(relation, examples)| {
            let report = RelationAccuracy {
                threshold: thresholds.0[&relation],
                accuracy: thresholds.accuracy(&examples),
                triples: examples.len(),
            };
            (kb.relation_name(relation).to_owned(), report)
        });
        ClassificationReport {
            accuracy: thresholds.accuracy(&test),
            f1: 2.0 * both / (predicted + hold),
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

    fn examples(scores: &[(f32, bool)]) -> Vec<Labelled> {
        scores.iter().map(|(score, holds)| (RelationId(0), *score, *holds)).collect()
    }

    /// Scores a triple by the distance between its subject and object; nearer is better.
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
    fn log_probabilities_are_filtered() {
        let known = TripleIndex::new(&[Triple::new(1, 0, 1), Triple::new(3, 0, 1)]);
        let triples =
            [Triple::new(1, 0, 2), Triple::new(1, 0, 3), Triple::new(1, 0, 1), Triple::new(0, 0, 2)];
        let found = log_probabilities(&Near, &triples, &known).unwrap();
        // For 1, which is a known answer of itself, 0 and 2 score equally. For 2, only 2 is nearer.
        // Probabilities stay finite whatever the scores of known answers are.
        let half = 0.5_f32.ln();
        let expected = [(half - 200.0) / 2.0, (half - 200.0 - 400.0) / 2.0, 0.0, -400.0];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found.among_unknown - expected).abs() < 1e-3, "{found:?} {expected}");
        }
        // If all other entities are known answers, the remaining one is certain.
        let known = TripleIndex::new(&[0, 1, 2, 3].map(|object| Triple::new(0, 0, object)));
        let certain = log_probabilities(&Near, &[Triple::new(0, 0, 3)], &known).unwrap()[0];
        assert!(
            certain.among_unknown.is_finite() && certain.among_unknown > certain.among_all,
            "{certain:?}"
        );
        // Among all entities, none is nearer than the entity itself.
        assert!((found[0].among_all + 200.0).abs() < 1e-3 && found[2].among_all.abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn thresholds_of_all_and_of_none_are_words() {
        for (threshold, text) in [(f32::MIN, "\"all\""), (f32::MAX, "\"none\""), (-1.5, "-1.5")] {
            let report = RelationAccuracy { threshold, accuracy: 0.5, triples: 2 };
            let written = serde_json::to_string(&report).unwrap();
            assert_eq!(written, format!("{{\"threshold\":{text},\"accuracy\":0.5,\"triples\":2}}"));
            assert_eq!(serde_json::from_str::<RelationAccuracy>(&written).unwrap(), report);
        }
        assert!(
            serde_json::from_str::<RelationAccuracy>(r#"{"threshold":"x","accuracy":1,"triples":1}"#)
                .is_err()
        );
    }

    #[test]
    fn a_threshold_classifies_as_many_correctly_as_any_other() {
        let cases: [&[(f32, bool)]; 5] = [
            &[(1.0, false), (2.0, true), (3.0, true)],
            &[(1.0, true), (2.0, false), (3.0, false)],
            &[(1.0, false), (1.0, true), (1.0, true), (0.0, true), (5.0, false)],
            &[(2.0, true)],
            &[(2.0, false)],
        ];
        for case in cases {
            let case = examples(case);
            let right = |bound: f32| case.iter().filter(|one| (one.1 >= bound) == one.2).count();
            let best = [-1.0, 0.5, 1.5, 2.5, 4.0, 9.0].map(right).into_iter().max().unwrap();
            assert_eq!(right(threshold(&case, 1e-3)), best, "{case:?} {}", threshold(&case, 1e-3));
        }
        assert_eq!(threshold(&examples(&[(1.0, false), (2.0, true)]), 1e-3), 1.5);
        // All triples hold, or none.
        assert_eq!(threshold(&examples(&[(2.0, true)]), 1e-3), f32::MIN);
        assert_eq!(threshold(&examples(&[(2.0, false)]), 1e-3), f32::MAX);
        // Two thresholds classify three of four correctly; the second is further from the examples.
        let two = examples(&[(0.0, false), (1.0, true), (1.5, false), (3.0, true)]);
        assert_eq!([1e-3, 0.3].map(|bandwidth| threshold(&two, bandwidth)), [0.5, 2.25]);
    }
}
