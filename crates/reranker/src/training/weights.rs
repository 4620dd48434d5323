//! The weights of a sum of similarities.

use sporran_training::RankingLoss;

use super::GradedQuery;

/// The scores of the passages, by similarity and query.
pub(super) type Scores = Vec<Vec<Vec<f32>>>;

/// The weighted sums of the passages' scores, by query.
pub(super) fn summed(scores: &Scores, weights: &[f64]) -> Vec<Vec<f32>> {
    let queries = scores.first().map_or(0, Vec::len);
    let sum = |at: usize| {
        let mut sums = vec![0.0; scores[0][at].len()];
        for (scores, weight) in scores.iter().zip(weights) {
            for (sum, score) in sums.iter_mut().zip(&scores[at]) {
                *sum += *weight as f32 * score;
            }
        }
        sums
    };
    (0..queries).map(sum).collect()
}

/// The largest number of gradient steps.
const STEPS: usize = 1000;
/// The norm of the gradient at which the descent stops.
const FLAT: f64 = 1e-5;
/// The L2 regularization, which keeps weights of collinear similarities bounded.
const DECAY: f64 = 1e-2;

/// The weights with the smallest listwise loss, by gradient descent from zero. The loss is convex. A step is
/// halved until it meets the condition of Armijo (1966), because collinear similarities make the loss steep.
pub(super) fn listwise_weights(scores: &Scores, queries: &[GradedQuery]) -> Vec<f64> {
    let counted = |query: &GradedQuery| RankingLoss::Listwise.weight(&query.targets);
    let count: f64 = queries.iter().map(counted).sum::<f64>().max(1.0);
    let evaluate = |weights: &[f64]| {
        let mut loss: f64 = weights.iter().map(|weight| DECAY * weight * weight).sum();
        let mut slopes: Vec<f64> = weights.iter().map(|weight| 2.0 * DECAY * weight).collect();
        for (at, (sums, query)) in summed(scores, weights).iter().zip(queries).enumerate() {
            let (own, by_score) = RankingLoss::Listwise.evaluate(sums, &query.targets);
            loss += own / count;
            for (slope, scores) in slopes.iter_mut().zip(scores) {
                let product: f64 =
                    by_score.iter().zip(&scores[at]).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                *slope += product / count;
            }
        }
        (loss, slopes)
    };
    let mut weights = vec![0.0; scores.len()];
    let (mut loss, mut slopes) = evaluate(&weights);
    let mut rate = 1.0;
    for _ in 0..STEPS {
        let steepness: f64 = slopes.iter().map(|slope| slope * slope).sum();
        if steepness < FLAT * FLAT {
            break;
        }
        let next: Vec<f64> =
            weights.iter().zip(&slopes).map(|(weight, slope)| weight - rate * slope).collect();
        let (next_loss, next_slopes) = evaluate(&next);
        if next_loss <= loss - 0.5 * rate * steepness {
            (weights, loss, slopes) = (next, next_loss, next_slopes);
            rate *= 1.5;
        } else if rate > 1e-6 {
            rate *= 0.5;
        } else {
            // Rounding errors exceed the improvement.
            break;
        }
    }
    weights
}

#[cfg(test)]
mod tests {
    use sporran_kilt::Query;

    use super::*;

    #[test]
    fn an_informative_similarity_gets_a_larger_weight_and_a_misleading_one_a_negative() {
        let targets = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let queries: Vec<GradedQuery> = targets
            .iter()
            .map(|targets| GradedQuery {
                query: Query::of_text("q", "q"),
                passages: Vec::new(),
                targets: targets.to_vec(),
            })
            .collect();
        let good: Vec<Vec<f32>> =
            targets.iter().map(|row| row.iter().map(|x| 3.0 * x - 1.0).collect()).collect();
        let none = vec![vec![1.0, 0.0, -1.0]; 3];
        let bad: Vec<Vec<f32>> =
            targets.iter().map(|row| row.iter().map(|x| 0.1 - 0.3 * x).collect()).collect();
        let scores = vec![good, none, bad];
        let weights = listwise_weights(&scores, &queries);
        assert!(weights[0] > 1.0 && weights[1].abs() < 0.05 && weights[2] < 0.0, "{weights:?}");
        let sums = summed(&scores, &weights);
        assert!((f64::from(sums[0][0]) - (2.0 * weights[0] + weights[1] - 0.2 * weights[2])).abs() < 1e-5);
        // Forty copies of a similarity get equal weights, and the steps do not overshoot.
        let many = vec![scores[0].clone(); 40];
        let shares = listwise_weights(&many, &queries);
        let together: f64 = shares.iter().sum();
        assert!(shares.iter().all(|share| (share - shares[0]).abs() < 1e-9), "{shares:?}");
        assert!(together > weights[0] && together < 10.0, "{together} {weights:?}");
    }
}
