//! Losses of a query's scores against its targets, each with its gradient by the scores.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A loss over the candidates of one query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RankingLoss {
    /// The log-loss of each candidate separately; a target from 0 to 1 is the probability that it is relevant.
    Binary,
    /// The logistic loss of the difference of each pair with different targets (Burges et al. 2005), weighted by the
    /// difference of the targets.
    Pairwise,
    /// The cross-entropy between the targets, over their sum, and the softmax of the scores (Cao et al. 2007).
    #[default]
    Listwise,
    /// The squared difference between the margin of two scores and that of their targets, which are a teacher's scores
    /// (Hofstätter et al. 2020), over all pairs.
    MarginMse,
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl RankingLoss {
    /// Whether `target` can be learned.
    pub(crate) fn takes(self, target: f32) -> bool {
        match self {
            Self::Binary => (0.0..=1.0).contains(&target),
            Self::Listwise => target >= 0.0 && target.is_finite(),
            Self::Pairwise | Self::MarginMse => target.is_finite(),
        }
    }

    /// Which targets can be learned.
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Self::Binary => "from 0 to 1",
            Self::Listwise => "finite and not negative",
            Self::Pairwise | Self::MarginMse => "finite",
        }
    }

    /// The weight of a query with these targets: its number of candidates if each has a separate loss, otherwise 1; 0 if the
    /// targets determine no order.
    pub fn weight(self, targets: &[f32]) -> f64 {
        let says = match self {
            Self::Binary => return targets.len() as f64,
            Self::Pairwise => targets.iter().any(|target| *target != targets[0]),
            Self::Listwise => targets.len() > 1 && targets.iter().any(|target| *target > 0.0),
            Self::MarginMse => targets.len() > 1,
        };
        f64::from(u8::from(says))
    }

    /// The loss, summed as [`weight`](Self::weight) counts, and its derivative by each score.
    pub fn evaluate(self, scores: &[f32], targets: &[f32]) -> (f64, Vec<f32>) {
        let scores: Vec<f64> = scores.iter().map(|score| f64::from(*score)).collect();
        let targets64: Vec<f64> = targets.iter().map(|target| f64::from(*target)).collect();
        let mut slopes = vec![0.0; scores.len()];
        let mut loss = 0.0;
        if self.weight(targets) == 0.0 {
            return (0.0, vec![0.0; scores.len()]);
        }
        match self {
            Self::Binary => {
                for ((score, target), slope) in scores.iter().zip(&targets64).zip(&mut slopes) {
                    loss += softplus(*score) - target * score;
                    *slope = sigmoid(*score) - target;
                }
            }
            Self::Pairwise => {
                let total: f64 = pairs(&targets64).map(|(_, _, margin)| margin).sum();
                for (better, worse, margin) in pairs(&targets64) {
                    let share = margin / total;
                    let difference = scores[better] - scores[worse];
                    loss += share * softplus(-difference);
                    let slope = share * sigmoid(-difference);
                    slopes[better] -= slope;
                    slopes[worse] += slope;
                }
            }
            Self::Listwise => {
                let total: f64 = targets64.iter().sum();
                let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let normaliser = greatest + scores.iter().map(|s| (s - greatest).exp()).sum::<f64>().ln();
                for ((score, target), slope) in scores.iter().zip(&targets64).zip(&mut slopes) {
                    loss += target / total * (normaliser - score);
                    *slope = (score - normaliser).exp() - target / total;
                }
            }
            Self::MarginMse => {
                let count = scores.len() as f64;
                let share = 2.0 / (count * (count - 1.0));
                for i in 0..scores.len() {
                    for j in i + 1..scores.len() {
                        let error = (scores[i] - scores[j]) - (targets64[i] - targets64[j]);
                        loss += share * error * error;
                        slopes[i] += 2.0 * share * error;
                        slopes[j] -= 2.0 * share * error;
                    }
                }
            }
        }
        (loss, slopes.into_iter().map(|slope| slope as f32).collect())
    }
}

/// The better and the worse of each pair with different targets, and by how much.
fn pairs(targets: &[f64]) -> impl Iterator<Item = (usize, usize, f64)> {
    let count = targets.len();
    (0..count).flat_map(move |better| {
        (0..count).filter_map(move |worse| {
            let margin = targets[better] - targets[worse];
            (margin > 0.0).then_some((better, worse, margin))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [RankingLoss; 4] =
        [RankingLoss::Binary, RankingLoss::Pairwise, RankingLoss::Listwise, RankingLoss::MarginMse];

    #[test]
    fn losses_are_what_their_formulas_say() {
        let (scores, targets) = ([1.0, -0.5, 0.0], [1.0, 0.0, 0.5]);
        let of = |loss: RankingLoss| loss.evaluate(&scores, &targets).0;
        // ln(1 + e) - 1, ln(1 + e^-0.5), ln 2
        let binary = (1f64.exp() + 1.0).ln() - 1.0 + (1.0 + (-0.5f64).exp()).ln() + 2f64.ln();
        assert!((of(RankingLoss::Binary) - binary).abs() < 1e-6);
        // Margins 1, 0.5 and 0.5 of 2, over differences 1.5, 1 and 0.5.
        let logistic = |x: f64| (1.0 + (-x).exp()).ln();
        let pairwise = 0.5 * logistic(1.5) + 0.25 * logistic(1.0) + 0.25 * logistic(0.5);
        assert!((of(RankingLoss::Pairwise) - pairwise).abs() < 1e-6);
        // Shares 2/3, 0, 1/3.
        let normaliser = (1f64.exp() + (-0.5f64).exp() + 1.0).ln();
        let listwise = 2.0 / 3.0 * (normaliser - 1.0) + 1.0 / 3.0 * normaliser;
        assert!((of(RankingLoss::Listwise) - listwise).abs() < 1e-6);
        // Margins 1.5 for 1, 1 for 0.5, -0.5 for -0.5.
        assert!((of(RankingLoss::MarginMse) - (0.25 + 0.25) / 3.0).abs() < 1e-6);
    }

    #[test]
    fn derivatives_are_those_that_differences_show() {
        let (scores, targets) = ([0.3f32, -1.2, 2.0, 0.0, 0.7], [0.2f32, 0.0, 1.0, 0.6, 0.2]);
        for loss in ALL {
            let (_, slopes) = loss.evaluate(&scores, &targets);
            for at in 0..scores.len() {
                let moved = |by: f32| {
                    let mut scores = scores;
                    scores[at] += by;
                    loss.evaluate(&scores, &targets).0
                };
                let expected = (moved(1e-2) - moved(-1e-2)) / 2e-2;
                assert!((f64::from(slopes[at]) - expected).abs() < 1e-4, "{loss:?} {at}");
            }
        }
    }

    #[test]
    fn great_scores_do_not_overflow() {
        for loss in ALL {
            let (value, slopes) = loss.evaluate(&[1e4, -1e4], &[0.0, 1.0]);
            assert!(value.is_finite() && slopes.iter().all(|slope| slope.is_finite()), "{loss:?}");
        }
    }

    #[test]
    fn targets_without_an_order_have_no_weight() {
        assert_eq!(RankingLoss::Pairwise.weight(&[0.4, 0.4]), 0.0);
        assert_eq!(RankingLoss::Listwise.weight(&[0.0, 0.0]), 0.0);
        assert_eq!(RankingLoss::Binary.weight(&[0.0, 0.0]), 2.0);
        assert_eq!(RankingLoss::Listwise.evaluate(&[1.0, 2.0], &[0.0, 0.0]), (0.0, vec![0.0, 0.0]));
    }
}
