//! Passes over whole rows of scores, written so that the compiler makes vectors of them.
//!
//! Every pass works in the same lanes and in the same order whatever the width of the machine's vectors, and uses no
//! fused multiplication and addition, so all machines give the same bits.

/// Sums are kept in this many lanes, whole vectors on every machine.
const LANES: usize = 16;

/// Scores whose greatest is compared before any of them is looked at.
const BLOCK: usize = 128;

/// A token that may follow, with its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scored {
    pub(crate) token: u32,
    pub(crate) score: f32,
}

/// Defines `$name` as `$body` compiled for the machine that it runs on.
macro_rules! dispatch {
    ($(#[$doc:meta])* $name:ident, $body:ident, ($($argument:ident: $kind:ty),*) -> $result:ty) => {
        $(#[$doc])*
        pub(crate) fn $name($($argument: $kind),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn wide($($argument: $kind),*) -> $result {
                    $body($($argument),*)
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: `wide` needs AVX2 and nothing else, and the line above found it.
                    return unsafe { wide($($argument),*) };
                }
            }
            $body($($argument),*)
        }
    };
}

dispatch!(
    /// The greatest of `scores`; minus infinity for none.
    greatest,
    greatest_in_lanes,
    (scores: &[f32]) -> f32
);

#[inline(always)]
fn greatest_in_lanes(scores: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut chunks = scores.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, score) in lanes.iter_mut().zip(chunk) {
            *lane = if *score > *lane { *score } else { *lane };
        }
    }
    chunks.remainder().iter().chain(&lanes).fold(f32::NEG_INFINITY, |max, score| max.max(*score))
}

dispatch!(
    /// The sum of the exponentials of `scores - max`.
    sum_of_exponentials,
    sum_of_exponentials_in_lanes,
    (scores: &[f32], max: f32) -> f64
);

#[inline(always)]
fn sum_of_exponentials_in_lanes(scores: &[f32], max: f32) -> f64 {
    let mut sum = 0f64;
    // Sums in f32 stay short, so that their rounding does.
    for portion in scores.chunks(64 * LANES) {
        let mut lanes = [0f32; LANES];
        let mut chunks = portion.chunks_exact(LANES);
        for chunk in &mut chunks {
            for (lane, score) in lanes.iter_mut().zip(chunk) {
                *lane += exp(*score - max);
            }
        }
        sum += chunks.remainder().iter().map(|score| f64::from(exp(*score - max))).sum::<f64>();
        sum += lanes.iter().map(|lane| f64::from(*lane)).sum::<f64>();
    }
    sum
}

/// The exponential of `x`, at most 0, to two units in the last place; values under -87 count as -87.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// Adding it rounds to an integer, which is then in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, of which the first has few enough bits to be multiplied exactly.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = if x > -87.0 { x } else { -87.0 };
    // e^x = 2^n e^r with |r| at most ln(2) / 2.
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    // The Taylor series to the seventh power: the remainder is under 6e-9.
    let mut series = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        series = series * r + coefficient;
    }
    f32::from_bits(series.to_bits().wrapping_add(shifted.to_bits() << 23))
}

/// The logarithm of the sum of the exponentials of `scores`; minus infinity where all are.
pub(crate) fn log_sum_exp(scores: &[f32]) -> f32 {
    let max = greatest(scores);
    if max == f32::NEG_INFINITY {
        return max;
    }
    max + sum_of_exponentials(scores, max).ln() as f32
}

dispatch!(
    /// The logarithm of the sum of the exponentials of the rows, each with a number added, place by place.
    log_add,
    log_add_in_lanes,
    (rows: &[(&[f32], f32)], out: &mut [f32]) -> ()
);

#[inline(always)]
fn log_add_in_lanes(rows: &[(&[f32], f32)], out: &mut [f32]) {
    let mut sums = [0f32; BLOCK];
    for (block, out) in out.chunks_mut(BLOCK).enumerate() {
        let rows = || rows.iter().map(|(row, added)| (&row[block * BLOCK..][..out.len()], *added));
        let mut greatest = [f32::NEG_INFINITY; BLOCK];
        for (row, added) in rows() {
            for (greatest, score) in greatest.iter_mut().zip(row) {
                let score = score + added;
                *greatest = if score > *greatest { score } else { *greatest };
            }
        }
        sums.fill(0.0);
        for (row, added) in rows() {
            for ((sum, greatest), score) in sums.iter_mut().zip(&greatest).zip(row) {
                *sum += exp(score + added - greatest);
            }
        }
        for ((out, sum), greatest) in out.iter_mut().zip(&sums).zip(&greatest) {
            *out = if *greatest > f32::NEG_INFINITY { greatest + sum.ln() } else { *greatest };
        }
    }
}

/// The first of the highest scores.
pub(crate) fn argmax(scores: &[f32]) -> Scored {
    let score = greatest(scores);
    let token = scores.iter().position(|other| *other == score).unwrap_or(0) as u32;
    Scored { token, score }
}

/// The `count` best of `scores`, each as `(score - normaliser) + sum`, best first, ties by token. There are `count`
/// of them wherever there are as many scores, impossible ones included.
pub(crate) fn best(scores: &[f32], normaliser: f32, sum: f32, count: usize) -> Vec<Scored> {
    let mut best: Vec<Scored> = Vec::with_capacity(count + 1);
    let total = |score: f32| (score - normaliser) + sum;
    for (block, scores) in scores.chunks(BLOCK).enumerate() {
        // Rounding keeps the order, so a block whose greatest comes too late has nothing that does not.
        if best.len() == count && best.last().is_none_or(|last| total(greatest(scores)) <= last.score) {
            continue;
        }
        for (at, score) in scores.iter().enumerate() {
            let score = total(*score);
            if best.len() == count && best.last().is_none_or(|last| score <= last.score) {
                continue;
            }
            let place = best.partition_point(|other| other.score >= score);
            best.insert(place, Scored { token: (block * BLOCK + at) as u32, score });
            best.truncate(count);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn row(seed: u64, length: usize) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..length).map(|_| rng.random_range(-30f32..12.0)).collect()
    }

    #[test]
    fn the_exponential_agrees_with_the_exact_one() {
        for i in 0..=87_000 {
            let x = -(i as f32) / 1000.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.5e-7, "{x}: {error}");
        }
        assert!(exp(f32::NEG_INFINITY) < 1e-37);
    }

    #[test]
    fn the_sum_of_exponentials_stays_in_range() {
        // ln(e^1000 + e^1000) = 1000 + ln 2
        assert!((log_sum_exp(&[1000.0, 1000.0]) - 1_000.693_1).abs() < 1e-3);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY, 0.0]), 0.0);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY; 40]), f32::NEG_INFINITY);
    }

    #[test]
    fn vectors_and_single_numbers_give_the_same_sum() {
        for length in [1, 15, 16, 17, 1024, 1025, 50_265] {
            let row = row(length as u64, length);
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(greatest(&row), max);
            let exact: f64 = row.iter().map(|x| f64::from(x - max).exp()).sum();
            let found = sum_of_exponentials(&row, max);
            assert!((found - exact).abs() < 1e-6 * exact, "{length}: {found} for {exact}");
            assert_eq!(found.to_bits(), sum_of_exponentials_in_lanes(&row, max).to_bits());
        }
    }

    #[test]
    fn rows_are_added_as_probabilities() {
        let (a, b) = (row(5, 300), row(6, 300));
        let mut out = vec![0.0; 300];
        log_add(&[(&a, 0.5), (&b, -1.0)], &mut out);
        for ((a, b), out) in a.iter().zip(&b).zip(&out) {
            let exact = ((f64::from(*a) + 0.5).exp() + (f64::from(*b) - 1.0).exp()).ln();
            assert!((f64::from(*out) - exact).abs() < 1e-5, "{out} for {exact}");
        }
        let none = [f32::NEG_INFINITY; 3];
        log_add(&[(&none, 0.0), (&none, 0.0)], &mut out[..3]);
        assert_eq!(out[..3], none);
    }

    #[test]
    fn the_best_scores_are_those_of_a_full_sort() {
        for (seed, length, count) in [(1, 5, 8), (2, 300, 8), (3, 5000, 1), (4, 5000, 40)] {
            let mut scores = row(seed, length);
            // Ties, and tokens that cannot follow.
            for at in (0..length).step_by(3) {
                scores[at] = scores[at].round();
            }
            for at in (0..length).step_by(7) {
                scores[at] = f32::NEG_INFINITY;
            }
            let mut order: Vec<Scored> = scores
                .iter()
                .enumerate()
                .map(|(token, score)| Scored { token: token as u32, score: (score - 3.25) + -7.5 })
                .collect();
            order.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.token.cmp(&b.token)));
            order.truncate(count);
            assert_eq!(best(&scores, 3.25, -7.5, count), order);
        }
        assert_eq!(best(&[f32::NEG_INFINITY; 300], 0.0, 0.0, 2).len(), 2);
    }

    #[test]
    fn the_first_of_equal_scores_is_taken() {
        assert_eq!(argmax(&[f32::NEG_INFINITY, 2.0, 1.0, 2.0]), Scored { token: 1, score: 2.0 });
    }
}
