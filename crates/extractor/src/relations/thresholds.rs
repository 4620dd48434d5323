//! From which probability on a property counts as stated.

use serde::{Deserialize, Serialize};

use super::{Annotated, Scores};

/// One probability for each property.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Thresholds(Vec<f32>);

/// Thresholds that are tried.
fn grid() -> impl Iterator<Item = f32> {
    (2..=38).map(|at| at as f32 / 40.0)
}

/// What a threshold gives on judged data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Gold facts that are predicted.
    pub found: usize,
    /// Predictions that no gold fact bears out.
    pub wrong: usize,
    /// Gold facts that are not predicted.
    pub missed: usize,
}

impl Judged {
    /// The harmonic mean of precision and recall; 0 where nothing is found.
    #[must_use]
    pub fn f1(&self) -> f64 {
        let all = 2 * self.found + self.wrong + self.missed;
        if all == 0 { 0.0 } else { 2.0 * self.found as f64 / all as f64 }
    }
}

impl std::iter::Sum for Judged {
    fn sum<I: Iterator<Item = Self>>(judged: I) -> Self {
        judged.fold(Self::default(), |sum, own| Self {
            found: sum.found + own.found,
            wrong: sum.wrong + own.wrong,
            missed: sum.missed + own.missed,
        })
    }
}

impl Thresholds {
    /// The given ones.
    #[must_use]
    pub fn new(values: Vec<f32>) -> Self {
        Self(values)
    }

    /// One for all of `labels` properties.
    #[must_use]
    pub fn even(labels: usize, value: f32) -> Self {
        Self(vec![value; labels])
    }

    /// One a property.
    #[must_use]
    pub fn all(&self) -> &[f32] {
        &self.0
    }

    /// Those with the best F1 on annotated documents, whose sentences have these scores.
    #[must_use]
    pub fn tuned(labels: usize, documents: &[(&Annotated, &[Scores])]) -> Self {
        let outcomes: Vec<Outcomes> = (0..labels).map(|label| Outcomes::of(label, documents)).collect();
        Self::fitted(&outcomes)
    }

    /// Those with the best F1, given what came of each property. So that chance has little say, F1 is smoothed over
    /// neighbouring thresholds, and a property with few facts leans on all others.
    #[must_use]
    pub fn fitted(outcomes: &[Outcomes]) -> Self {
        let curves: Vec<Vec<Judged>> = outcomes
            .iter()
            .map(|outcomes| grid().map(|threshold| outcomes.judged(threshold)).collect())
            .collect();
        let all: Vec<Judged> =
            (0..grid().count()).map(|at| curves.iter().map(|curve| curve[at]).sum()).collect();
        let facts: usize = all.first().map_or(0, |judged| judged.found + judged.missed);
        let values = curves.iter().map(|curve| {
            // All properties together weigh as much as twenty facts of this one.
            let share = 20.0 / facts.max(1) as f64;
            let f1: Vec<f64> = curve
                .iter()
                .zip(&all)
                .map(|(own, all)| {
                    let sum = |of: fn(&Judged) -> usize| of(own) as f64 + share * of(all) as f64;
                    let found = sum(|judged| judged.found);
                    2.0 * found
                        / (2.0 * found + sum(|judged| judged.wrong) + sum(|judged| judged.missed)).max(1e-9)
                })
                .collect();
            let smooth = |at: usize| {
                let near = &f1[at.saturating_sub(2)..(at + 3).min(f1.len())];
                near.iter().sum::<f64>() / near.len() as f64
            };
            let mut best = (0, f64::NEG_INFINITY);
            for at in 0..f1.len() {
                if smooth(at) > best.1 {
                    best = (at, smooth(at));
                }
            }
            grid().nth(best.0).unwrap_or(0.5)
        });
        Self(values.collect())
    }

    /// What these give on annotated documents, for each property.
    #[must_use]
    pub fn judge(&self, documents: &[(&Annotated, &[Scores])]) -> Vec<Judged> {
        let judged = |(label, threshold): (usize, &f32)| Outcomes::of(label, documents).judged(*threshold);
        self.0.iter().enumerate().map(judged).collect()
    }
}

/// What came of one property.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes {
    /// How likely each gold fact was found; 0 or less where it was not at all.
    pub gold: Vec<f32>,
    /// How likely each prediction was that can be right or wrong, and whether a gold fact bears it out.
    pub predicted: Vec<(f32, bool)>,
}

impl Outcomes {
    fn of(label: usize, documents: &[(&Annotated, &[Scores])]) -> Self {
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

    /// What a threshold gives.
    #[must_use]
    pub fn judged(&self, threshold: f32) -> Judged {
        let found = self.gold.iter().filter(|value| **value >= threshold).count();
        let wrong = self.predicted.iter().filter(|(value, right)| !right && *value >= threshold).count();
        Judged { found, wrong, missed: self.gold.len() - found }
    }
}

#[cfg(test)]
mod tests {
    use sporran_training::PairTarget;

    use super::*;
    use crate::{Document, relations::examples::GoldFact};

    /// Ten pairs of one property; the first four are gold, and their scores fall from 0.9.
    fn judged() -> (Annotated, Vec<Scores>) {
        let scores: Vec<f32> = vec![0.9, 0.8, 0.7, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05, 0.02];
        let target =
            |pair: usize| PairTarget { pair, label: 0, value: f32::from(u8::from(pair < 4)), weight: 1.0 };
        let span = crate::Span { start: 0, end: 1 };
        let fact = |pair: usize| GoldFact {
            label: 0,
            subject: span,
            object: span,
            linked: false,
            pairs: vec![(0, pair)],
        };
        let annotated = Annotated {
            document: Document::new("d", ""),
            mentions: Vec::new(),
            candidates: Vec::new(),
            targets: vec![(0..10).map(target).collect()],
            facts: (0..4).map(fact).collect(),
        };
        (annotated, vec![Scores::new(1, scores)])
    }

    #[test]
    fn the_threshold_lies_where_gold_and_the_rest_part() {
        let (annotated, scores) = judged();
        let documents = [(&annotated, &*scores)];
        let tuned = Thresholds::tuned(1, &documents);
        assert!((0.45..=0.6).contains(&tuned.all()[0]), "{tuned:?}");
        assert_eq!(tuned.judge(&documents), [Judged { found: 4, wrong: 0, missed: 0 }]);
        let low = Thresholds::even(1, 0.15).judge(&documents);
        // 0.45, 0.3 and 0.2 are wrong.
        assert_eq!(low, [Judged { found: 4, wrong: 3, missed: 0 }]);
        assert!((low[0].f1() - 8.0 / 11.0).abs() < 1e-12);
    }
}
