//! The choice of a decision threshold.

/// The threshold with the best F1, and that F1. `scored` are the scores of predictions and whether they are
/// correct. `all` is the number of gold items.
#[must_use]
pub fn best_threshold(mut scored: Vec<(f32, bool)>, all: usize) -> (f32, f64) {
    scored.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let (mut best, mut right) = ((0.0, 0.0), 0usize);
    for at in 0..scored.len() {
        right += usize::from(scored[at].1);
        let next = scored.get(at + 1).map_or(scored[at].0 - 1.0, |next| next.0);
        let f1 = 2.0 * right as f64 / (at + 1 + all) as f64;
        if next < scored[at].0 && f1 > best.1 {
            best = ((scored[at].0 + next) / 2.0, f1);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_threshold_separates_correct_from_wrong_predictions() {
        let scored = vec![(2.0, true), (-1.0, false), (1.0, true), (0.5, false), (-2.0, true)];
        let (threshold, f1) = best_threshold(scored, 3);
        assert_eq!(threshold, 0.75);
        assert!((f1 - 0.8).abs() < 1e-12);
        // Predictions with equal scores are accepted together or not at all.
        assert_eq!(best_threshold(vec![(1.0, true), (1.0, false), (0.0, false)], 1).0, 0.5);
        assert_eq!(best_threshold(Vec::new(), 2), (0.0, 0.0));
    }
}
