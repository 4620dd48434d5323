//! Decision thresholds of properties.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Annotated, Scores};

/// One probability threshold a property.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Thresholds(Vec<f32>);

/// How the threshold of a property is chosen on the validation documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ThresholdFit {
    /// The threshold with the best F1 of the property.
    #[default]
    Plain,
    /// The same with F1 smoothed over neighbouring thresholds. All properties together count as much as twenty facts of this
    /// one.
    Smoothed,
}

impl ThresholdFit {
    /// The thresholds for the outcomes of each property.
    #[must_use]
    pub fn fit(self, outcomes: &[Outcomes]) -> Thresholds {
        match self {
            Self::Plain => Thresholds::plain(outcomes),
            Self::Smoothed => Thresholds::fitted(outcomes),
        }
    }
}

/// The threshold of a property without facts, and of one whose facts are never found, as in the authors' code.
const UNKNOWN: f32 = 0.95;

/// The thresholds that [`Thresholds::fitted`] tries.
fn grid() -> impl Iterator<Item = f32> {
    (2..=38).map(|at| at as f32 / 40.0)
}

/// The counts of a threshold on annotated data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThresholdCounts {
    /// Gold facts that are predicted.
    pub found: usize,
    /// Predictions that match no gold fact.
    pub wrong: usize,
    /// Gold facts that are not predicted.
    pub missed: usize,
}

impl ThresholdCounts {
    /// The harmonic mean of precision and recall; 0 without correct predictions.
    #[must_use]
    pub fn f1(&self) -> f64 {
        let all = 2 * self.found + self.wrong + self.missed;
        if all == 0 { 0.0 } else { 2.0 * self.found as f64 / all as f64 }
    }
}

impl std::iter::Sum for ThresholdCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, one| Self {
            found: sum.found + one.found,
            wrong: sum.wrong + one.wrong,
            missed: sum.missed + one.missed,
        })
    }
}

impl Thresholds {
    /// These thresholds.
    #[must_use]
    pub fn new(values: Vec<f32>) -> Self {
        Self(values)
    }

    /// The same threshold for all of `labels` properties.
    #[must_use]
    pub fn even(labels: usize, value: f32) -> Self {
        Self(vec![value; labels])
    }

    /// One threshold a property.
    #[must_use]
    pub fn all(&self) -> &[f32] {
        &self.0
    }

    /// The thresholds with the best F1 on annotated documents with these scores of their sentences.
    #[must_use]
    pub fn tuned(labels: usize, documents: &[(&Annotated, &[Scores])]) -> Self {
        let outcomes: Vec<Outcomes> = (0..labels).map(|label| Outcomes::of(label, documents)).collect();
        Self::fitted(&outcomes)
    }

    /// For each property the threshold with the best F1, given its outcomes; the greatest of equals.
    #[must_use]
    pub fn plain(outcomes: &[Outcomes]) -> Self {
        Self(outcomes.iter().map(Outcomes::best).collect())
    }

    /// The thresholds with the best F1, given the outcomes of each property. Against overfitting, F1 is
    /// smoothed over neighbouring thresholds, and properties with few facts are combined with all others.
    #[must_use]
    pub fn fitted(outcomes: &[Outcomes]) -> Self {
        let curves: Vec<Vec<ThresholdCounts>> = outcomes
            .iter()
            .map(|outcomes| grid().map(|threshold| outcomes.counts(threshold)).collect())
            .collect();
        let all: Vec<ThresholdCounts> =
            (0..grid().count()).map(|index| curves.iter().map(|curve| curve[index]).sum()).collect();
        let facts: usize = all.first().map_or(0, |counts| counts.found + counts.missed);
        let values = curves.iter().map(|curve| {
            // All properties together weigh as much as twenty facts of this one.
            let share = 20.0 / facts.max(1) as f64;
            let f1: Vec<f64> = curve
                .iter()
                .zip(&all)
                .map(|(one, all)| {
                    let sum = |of: fn(&ThresholdCounts) -> usize| of(one) as f64 + share * of(all) as f64;
                    let found = sum(|counts| counts.found);
                    2.0 * found
                        / (2.0 * found + sum(|counts| counts.wrong) + sum(|counts| counts.missed)).max(1e-9)
                })
                .collect();
            let smooth = |index: usize| {
                let near = &f1[index.saturating_sub(2)..(index + 3).min(f1.len())];
                near.iter().sum::<f64>() / near.len() as f64
            };
            let mut best = (0, f64::NEG_INFINITY);
            for index in 0..f1.len() {
                if smooth(index) > best.1 {
                    best = (index, smooth(index));
                }
            }
            grid().nth(best.0).unwrap_or(0.5)
        });
        Self(values.collect())
    }

    /// The counts of these thresholds on annotated documents, for each property.
    #[must_use]
    pub fn counts(&self, documents: &[(&Annotated, &[Scores])]) -> Vec<ThresholdCounts> {
        let counts = |(label, threshold): (usize, &f32)| Outcomes::of(label, documents).counts(*threshold);
        self.0.iter().enumerate().map(counts).collect()
    }

    /// The micro F1 of these thresholds on annotated documents.
    #[must_use]
    pub fn micro_f1(&self, documents: &[(&Annotated, &[Scores])]) -> f64 {
        self.counts(documents).into_iter().sum::<ThresholdCounts>().f1()
    }
}

/// The predictions for one property.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes {
    /// The probability of each gold fact; 0 or less if no candidate pair covers it.
    pub gold: Vec<f32>,
    /// The probability of each prediction that can be evaluated, and whether it matches a gold fact.
    pub predicted: Vec<(f32, bool)>,
}

impl Outcomes {
    /// The outcomes of a property on annotated documents with these scores of their sentences.
    #[must_use]
    pub fn of(label: usize, documents: &[(&Annotated, &[Scores])]) -> Self {
        let (mut gold, mut predicted) = (Vec::new(), Vec::new());
        for (annotated, scores) in documents {
            for fact in annotated.facts.iter().filter(|fact| fact.label == label) {
                let best = fact.pairs.iter().map(|&(sentence, pair)| scores[sentence].of(pair, label));
                gold.push(best.fold(f32::NEG_INFINITY, f32::max));
            }
            for (targets, scores) in annotated.targets.iter().zip(*scores) {
                for target in targets.iter().filter(|target| target.label == label) {
                    predicted.push((scores.of(target.pair, label), target.value > 0.5));
                }
            }
        }
        Self { gold, predicted }
    }

    /// The outcomes of a property's links. A prediction is the two links of a pair, with the probability that they are correct,
    /// or 0 if the pair's fact is below `threshold`. It matches if a fact of the passage has the same links. Equal links
    /// count once a passage, as in KnowledgeNet's scorer.
    #[must_use]
    pub fn of_links(label: usize, threshold: f32, documents: &[(&Annotated, &[Scores])]) -> Self {
        let (mut gold, mut predicted) = (Vec::new(), Vec::new());
        for (annotated, scores) in documents {
            let mut best: BTreeMap<(usize, (&str, &str)), f32> = BTreeMap::new();
            for (sentence, (targets, scores)) in annotated.targets.iter().zip(*scores).enumerate() {
                for target in targets.iter().filter(|target| target.label == label) {
                    let Some(links) = annotated.links_of(sentence, target.pair) else { continue };
                    let is_stated = scores.of(target.pair, label) >= threshold;
                    let value = if is_stated { scores.of_links(target.pair, label) } else { 0.0 };
                    let passage = annotated.passages[sentence][target.pair];
                    let known = best.entry((passage, links)).or_insert(value);
                    *known = known.max(value);
                }
            }
            let facts = annotated.facts.iter().filter(|fact| fact.label == label);
            let facts: BTreeSet<(usize, (&str, &str))> = facts
                .filter_map(|fact| Some((fact.passage, fact.links.as_ref()?)))
                .map(|(passage, (subject, object))| (passage, (subject.as_str(), object.as_str())))
                .collect();
            gold.extend(facts.iter().map(|links| best.get(links).copied().unwrap_or(f32::NEG_INFINITY)));
            predicted.extend(best.iter().map(|(links, value)| (*value, facts.contains(links))));
        }
        Self { gold, predicted }
    }

    /// The threshold with the best F1, midway between two probabilities or the least of them; the greatest of equals. [`UNKNOWN`]
    /// where no threshold finds a fact.
    fn best(&self) -> f32 {
        let wrong = self.predicted.iter().filter(|(_, right)| !right).map(|(value, _)| (*value, false));
        let mut values: Vec<(f32, bool)> = self
            .gold
            .iter()
            .map(|value| (*value, true))
            .chain(wrong)
            .filter(|(value, _)| *value > 0.0)
            .collect();
        values.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut counts = ThresholdCounts { missed: self.gold.len(), ..ThresholdCounts::default() };
        let (mut best, mut threshold) = (0.0, UNKNOWN);
        for (at, (value, is_gold)) in values.iter().enumerate() {
            if *is_gold {
                counts.found += 1;
                counts.missed -= 1;
            } else {
                counts.wrong += 1;
            }
            let next = values.get(at + 1).map(|(next, _)| *next);
            if next != Some(*value) && counts.f1() > best {
                best = counts.f1();
                threshold = next.map_or(*value, |next| f32::midpoint(*value, next));
            }
        }
        threshold
    }

    /// The counts of a threshold.
    #[must_use]
    pub fn counts(&self, threshold: f32) -> ThresholdCounts {
        let found = self.gold.iter().filter(|value| **value >= threshold).count();
        let wrong = self.predicted.iter().filter(|(value, right)| !right && *value >= threshold).count();
        ThresholdCounts { found, wrong, missed: self.gold.len() - found }
    }
}

#[cfg(test)]
mod tests {
    use sporran_training::PairTarget;

    use super::*;
    use crate::{Document, relations::examples::GoldFact};

    /// Ten pairs of one property; the first four are gold, with scores falling from 0.9.
    fn annotated() -> (Annotated, Vec<Scores>) {
        let scores: Vec<f32> = vec![0.9, 0.8, 0.7, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05, 0.02];
        let target =
            |pair: usize| PairTarget { pair, label: 0, value: f32::from(u8::from(pair < 4)), weight: 1.0 };
        let span = crate::Span { start: 0, end: 1 };
        let fact = |pair: usize| GoldFact {
            label: 0,
            passage: 0,
            subject: span,
            object: span,
            links: None,
            pairs: vec![(0, pair)],
        };
        let annotated = Annotated {
            document: Document::new("d", ""),
            mentions: Vec::new(),
            candidates: Vec::new(),
            targets: vec![(0..10).map(target).collect()],
            passages: vec![vec![0; 10]],
            facts: (0..4).map(fact).collect(),
        };
        (annotated, vec![Scores::new(1, scores)])
    }

    #[test]
    fn the_threshold_separates_gold_from_the_rest() {
        let (annotated, scores) = annotated();
        let documents = [(&annotated, &*scores)];
        let tuned = Thresholds::tuned(1, &documents);
        assert!((0.45..=0.6).contains(&tuned.all()[0]), "{tuned:?}");
        assert_eq!(tuned.counts(&documents), [ThresholdCounts { found: 4, wrong: 0, missed: 0 }]);
        let low = Thresholds::even(1, 0.15).counts(&documents);
        // 0.45, 0.3 and 0.2 are wrong.
        assert_eq!(low, [ThresholdCounts { found: 4, wrong: 3, missed: 0 }]);
        assert!((low[0].f1() - 8.0 / 11.0).abs() < 1e-12);
    }

    #[test]
    fn the_plain_threshold_is_the_best_of_its_own_property() {
        let one = |gold: &[f32], wrong: &[f32]| Outcomes {
            gold: gold.to_vec(),
            predicted: wrong.iter().map(|value| (*value, false)).collect(),
        };
        // F1 is 1 from above 0.31 to 0.52. The second property has one fact below three wrong predictions: at 0.4 F1 is 2/5,
        // at a greater threshold 0. The third has no facts. The fourth is as good at 0.8 as at 0.2 (F1 2/3).
        let outcomes = [
            one(&[0.9, 0.52], &[0.31]),
            one(&[0.4], &[0.8, 0.7, 0.6]),
            one(&[], &[0.99]),
            one(&[0.8, 0.2], &[0.6, 0.6]),
        ];
        assert_eq!(
            ThresholdFit::Plain.fit(&outcomes).all(),
            [f32::midpoint(0.52, 0.31), 0.4, 0.95, f32::midpoint(0.8, 0.6)]
        );
        // The other facts pull the threshold of the second property.
        assert_ne!(ThresholdFit::Smoothed.fit(&outcomes).all()[1], 0.4);
    }

    #[test]
    fn links_are_right_if_a_fact_of_the_passage_has_them_and_its_text_is_stated() {
        let (mut annotated, scores) = annotated();
        let entities = ["Q1", "Q2", "Q3"];
        let known =
            |entity: &str| crate::relations::Known { entity: Some(entity.into()), ..Default::default() };
        let ends = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (0, 1), (0, 0), (1, 1), (2, 2)];
        let pair = |(first, second): &(u32, u32)| sporran_transformers::StatePair {
            first: *first,
            second: *second,
            features: vec![],
        };
        annotated.candidates = vec![crate::relations::Candidates {
            sentence: 0,
            mentions: vec![0, 1, 2],
            pairs: ends.iter().map(pair).collect(),
            known: entities.iter().map(|entity| known(entity)).collect(),
            facts: vec![Vec::new(); 10],
        }];
        // Pair 0 has the links of a fact, with the probability 0.4. Pair 6 has them too, and is not stated.
        annotated.facts[0].links = Some(("Q1".into(), "Q2".into()));
        annotated.facts[1].links = Some(("Q1".into(), "Q9".into()));
        let links: Vec<f32> = vec![0.4, 0.8, 0.7, 0.6, 0.9, 0.9, 0.95, 0.9, 0.9, 0.9];
        let scores: Vec<Scores> = scores.into_iter().map(|scores| scores.with_links(links.clone())).collect();
        let outcomes = Outcomes::of_links(0, 0.5, &[(&annotated, &scores)]);
        assert_eq!(outcomes.gold, [0.4, f32::NEG_INFINITY]);
        // By links: Q1 Q2, Q1 Q3, Q2 Q1, Q2 Q3, Q3 Q1 (below the threshold), Q3 Q2 (too). Equal links are none.
        assert_eq!(
            outcomes.predicted,
            [(0.4, true), (0.8, false), (0.7, false), (0.6, false), (0.0, false), (0.0, false)]
        );
        // In another passage the links of pair 6 count on their own, and are no fact's.
        annotated.passages[0][6] = 1;
        let outcomes = Outcomes::of_links(0, 0.0, &[(&annotated, &scores)]);
        assert_eq!(outcomes.gold, [0.4, f32::NEG_INFINITY]);
        assert_eq!(outcomes.predicted.last(), Some(&(0.95, false)));
    }
}
