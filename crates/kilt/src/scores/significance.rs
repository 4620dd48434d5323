//! Confidence intervals of mean scores, and significance tests of two systems on the same records.
//!
//! Intervals are percentile bootstraps (Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, chapter
//! 13). The test of a difference flips the signs of paired differences at random (Fisher's randomisation
//! test; Smucker et al., "A Comparison of Statistical Significance Tests for Information Retrieval
//! Evaluation", 2007). Each round has a separate random stream of one seed, so results do not depend on
//! threads.

use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::Serialize;

use super::mean;
use crate::{Error, Result};

/// The random rounds of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    /// The number of rounds.
    pub count: u32,
    /// The random seed.
    pub seed: u64,
    /// The confidence level, between 0 and 1.
    pub level: f64,
}

impl Default for Rounds {
    /// 10,000 rounds, intervals of 95%.
    fn default() -> Self {
        Self { count: 10_000, seed: 0, level: 0.95 }
    }
}

/// A mean with its bootstrap confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The mean of the records.
    pub mean: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

/// Two systems on the same records.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The mean of the first minus the mean of the second, with its interval.
    pub difference: Interval,
    /// The two-sided probability of a difference at least as large if the systems are equal.
    pub p_value: f64,
}

/// The mean of `scores` with its confidence interval.
///
/// ```
/// use sporran_kilt::scores::significance::{Rounds, interval};
///
/// let found = interval(&[0.0, 1.0, 1.0, 0.0], Rounds::default())?;
/// assert_eq!(found.mean, 0.5);
/// assert!(found.low < found.mean && found.mean < found.high);
/// # Ok::<(), sporran_kilt::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] without scores or rounds, or for a level that is not between 0 and 1.
pub fn interval(scores: &[f64], rounds: Rounds) -> Result<Interval> {
    if scores.is_empty() {
        return Err(Error::Argument("scores: expected at least one record, found none".into()));
    }
    if rounds.count == 0 || !(rounds.level > 0.0 && rounds.level < 1.0) {
        let Rounds { count, level, .. } = rounds;
        let message =
            format!("expected at least one round and a level between 0 and 1, found {count} and {level}");
        return Err(Error::Argument(message));
    }
    let mut means: Vec<f64> = (0..rounds.count)
        .into_par_iter()
        .map(|round| {
            let mut random = stream(rounds.seed, 2 * u64::from(round));
            mean(scores.iter().map(|_| scores[random.random_range(0..scores.len())]))
        })
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - rounds.level) / 2.0;
    Ok(Interval {
        mean: mean(scores.iter().copied()),
        low: quantile(&means, tail),
        high: quantile(&means, 1.0 - tail),
    })
}

/// Compares the scores of two systems, record by record.
///
/// ```
/// use sporran_kilt::scores::significance::{Rounds, compare};
///
/// let (first, second) = (vec![1.0; 20], vec![0.0; 20]);
/// let found = compare(&first, &second, Rounds::default())?;
/// assert_eq!(found.difference.mean, 1.0);
/// assert!(found.p_value < 0.001);
/// # Ok::<(), sporran_kilt::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for lists of different lengths, and those of [`interval`].
pub fn compare(first: &[f64], second: &[f64], rounds: Rounds) -> Result<Comparison> {
    if first.len() != second.len() {
        let (first, second) = (first.len(), second.len());
        return Err(Error::Argument(format!(
            "scores: expected lists of one length, found {first} and {second}"
        )));
    }
    let differences: Vec<f64> = first.iter().zip(second).map(|(first, second)| first - second).collect();
    let difference = interval(&differences, rounds)?;
    // Records without a difference have no sign to flip.
    let signed: Vec<f64> = differences.into_iter().filter(|&difference| difference != 0.0).collect();
    let observed = signed.iter().sum::<f64>().abs();
    // Sums of the same values with other signs can differ in the last digits.
    let bound = observed - 1e-12 * signed.iter().map(|difference| difference.abs()).sum::<f64>();
    let extreme: u32 = (0..rounds.count)
        .into_par_iter()
        .map(|round| {
            let mut random = stream(rounds.seed, 2 * u64::from(round) + 1);
            let sum: f64 = signed.chunks(64).map(|chunk| flipped(chunk, random.next_u64())).sum();
            u32::from(sum.abs() >= bound)
        })
        .sum();
    // The observed signs count as one round, so the probability is never 0.
    let p_value = (f64::from(extreme) + 1.0) / (f64::from(rounds.count) + 1.0);
    Ok(Comparison { difference, p_value })
}

/// The two-sided probability of a split of wins and losses at least as uneven as this one, if both are equally likely
/// (the exact sign test; ties do not count). 1 without wins and losses.
///
/// ```
/// use sporran_kilt::scores::significance::sign_test;
///
/// // 2 (1 + 5) / 2^5
/// assert!((sign_test(4, 1) - 0.375).abs() < 1e-12);
/// ```
#[must_use]
pub fn sign_test(wins: u64, losses: u64) -> f64 {
    let (count, fewer) = (wins + losses, wins.min(losses));
    // Logarithms, because 2^-n leaves the range of floats.
    let mut log_ways = 0.0f64;
    let mut tail = 0.0;
    for k in 0..=fewer {
        tail += (log_ways - count as f64 * std::f64::consts::LN_2).exp();
        log_ways += ((count - k) as f64 / (k + 1) as f64).ln();
    }
    (2.0 * tail).min(1.0)
}

fn stream(seed: u64, round: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(round);
    random
}

fn flipped(differences: &[f64], signs: u64) -> f64 {
    let sign = |at: usize| if signs >> at & 1 == 0 { 1.0 } else { -1.0 };
    differences.iter().enumerate().map(|(at, difference)| sign(at) * difference).sum()
}

/// Interpolates linearly between the two nearest of sorted values.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: Rounds = Rounds { count: 20_000, seed: 11, level: 0.95 };

    #[test]
    fn ten_wins_of_ten_have_the_probability_of_equal_signs() {
        let comparison = compare(&[1.0; 10], &[0.0; 10], ROUNDS).unwrap();
        assert_eq!(comparison.difference, Interval { mean: 1.0, low: 1.0, high: 1.0 });
        // All signs equal: 2 of 2^10 ways; three standard errors of 20,000 rounds.
        let exact = 2.0 / 1024.0;
        assert!(
            (comparison.p_value - exact).abs() < 3.0 * (exact / 20_000f64).sqrt(),
            "{}",
            comparison.p_value
        );
    }

    #[test]
    fn equal_systems_do_not_differ() {
        let scores = [0.1, 0.7, 0.3];
        let comparison = compare(&scores, &scores, ROUNDS).unwrap();
        assert_eq!((comparison.difference.mean, comparison.p_value), (0.0, 1.0));
    }

    #[test]
    fn the_interval_is_about_two_standard_errors_wide() {
        // 400 records, half right: standard error 0.5 / sqrt(400) = 0.025.
        let scores: Vec<f64> = (0..400).map(|at| f64::from(at % 2)).collect();
        let Interval { mean, low, high } = interval(&scores, ROUNDS).unwrap();
        assert_eq!(mean, 0.5);
        assert!((low - (0.5 - 1.96 * 0.025)).abs() < 0.004 && (high - (0.5 + 1.96 * 0.025)).abs() < 0.004);
    }

    #[test]
    fn a_seed_gives_the_same_figures_on_any_number_of_threads() {
        let scores: Vec<f64> = (0..50).map(|at| f64::from(at).sin()).collect();
        let other: Vec<f64> = (0..50).map(|at| f64::from(at).cos()).collect();
        let run = || compare(&scores, &other, Rounds { count: 500, ..ROUNDS }).unwrap();
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap().install(run);
        assert_eq!(run(), one);
        assert_ne!(run(), compare(&scores, &other, Rounds { count: 500, seed: 12, ..ROUNDS }).unwrap());
    }

    #[test]
    fn the_sign_test_sums_the_tails_of_the_binomial_distribution() {
        // 2 (1 + 10 + 45) / 2^10 and 2 / 2^6.
        assert!((sign_test(8, 2) - 112.0 / 1024.0).abs() < 1e-12);
        assert_eq!(sign_test(8, 2), sign_test(2, 8));
        assert!((sign_test(0, 6) - 2.0 / 64.0).abs() < 1e-12);
        assert_eq!((sign_test(0, 0), sign_test(5, 5)), (1.0, 1.0));
        assert!((sign_test(1, 0) - 1.0).abs() < 1e-12);
        // A split of 2,000 that is four standard deviations from even.
        let p = sign_test(1089, 911);
        assert!(p > 5e-5 && p < 9e-5, "{p}");
    }

    #[test]
    fn wrong_arguments_are_refused() {
        assert!(compare(&[1.0], &[], ROUNDS).unwrap_err().to_string().contains("found 1 and 0"));
        assert!(interval(&[], ROUNDS).is_err());
        assert!(interval(&[1.0], Rounds { level: 1.0, ..ROUNDS }).is_err());
        assert!(interval(&[1.0], Rounds { count: 0, ..ROUNDS }).is_err());
    }
}
