//! The distribution of the BLEU of spans.

use serde::{Deserialize, Serialize};

/// Spans by BLEU, in tenths (Petroni et al. 2021, figure 5).
///
/// Bin i counts the spans from i/10 to (i + 1)/10. The upper end belongs to the next bin; 1 belongs to the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BleuHistogram(pub [u64; 10]);

impl BleuHistogram {
    /// Counts a span with a BLEU from 0 to 1.
    pub fn add(&mut self, bleu: f64) {
        // A negative number becomes 0.
        self.0[((bleu * 10.0) as usize).min(9)] += 1;
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own += other);
    }

    /// The number of spans.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bin_has_its_lower_end_and_the_last_one_both() {
        let mut histogram = BleuHistogram::default();
        [0.0, 0.09, 0.1, 0.5, 0.59, 0.9, 1.0].into_iter().for_each(|bleu| histogram.add(bleu));
        assert_eq!(histogram.0, [2, 1, 0, 0, 0, 2, 0, 0, 0, 2]);
        let mut both = histogram;
        both.merge(&histogram);
        assert_eq!((both.0[0], both.total()), (4, 14));
    }
}
