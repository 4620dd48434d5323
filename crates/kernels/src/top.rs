//! Top-k selection.

use std::cmp::Ordering;

/// The order of results: greater scores first, ties by ascending id.
#[must_use]
pub fn by_rank(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// Keeps the best `k` offers, in amortised constant time an offer.
///
/// Ties go to the smaller id, for which ids must be offered in ascending order.
#[derive(Clone, Debug)]
pub struct Top {
    k: usize,
    threshold: f32,
    found: Vec<(u32, f32)>,
}

impl Top {
    /// Keeps the best `k`.
    #[must_use]
    pub fn new(k: usize) -> Self {
        Self { k, threshold: if k == 0 { f32::INFINITY } else { f32::NEG_INFINITY }, found: Vec::new() }
    }

    /// A score must exceed this to be kept.
    #[must_use]
    pub fn threshold(&self) -> f32 {
        self.threshold
    }

    /// Offers a score that exceeds the threshold; the id is greater than all before it.
    pub fn offer(&mut self, id: u32, score: f32) {
        self.found.push((id, score));
        // The buffer grows to twice the size before the worse half is dropped, which makes an offer cheap.
        if self.found.len() >= self.k.saturating_mul(2).saturating_add(16) {
            self.found.select_nth_unstable_by(self.k - 1, by_rank);
            self.found.truncate(self.k);
            self.threshold = self.found[self.k - 1].1;
        }
    }

    /// The best offers to any of `parts`, best first.
    #[must_use]
    pub fn merged(parts: impl IntoIterator<Item = Self>, k: usize) -> Vec<(u32, f32)> {
        let mut found: Vec<(u32, f32)> = parts.into_iter().flat_map(|part| part.found).collect();
        if k < found.len() {
            found.select_nth_unstable_by(k, by_rank);
            found.truncate(k);
        }
        found.sort_unstable_by(by_rank);
        found
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn the_best_are_those_of_a_sort() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        for (count, k) in [(0, 3), (2, 5), (40, 1), (500, 7), (500, 0), (300, 300)] {
            // Few different scores, so that ids often decide.
            let scores: Vec<(u32, f32)> =
                (0..count).map(|id| (id, rng.random_range(0..20) as f32 / 4.0)).collect();
            let mut parts = [Top::new(k), Top::new(k)];
            for &(id, score) in &scores {
                let part = &mut parts[id as usize % 2];
                if score > part.threshold() {
                    part.offer(id, score);
                }
            }
            let mut expected = scores;
            expected.sort_by(by_rank);
            expected.truncate(k);
            assert_eq!(Top::merged(parts, k), expected, "{count} {k}");
        }
    }
}
