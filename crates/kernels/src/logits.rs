//! Gradients of losses from rows of scores, and ranks in a row.

use crate::{
    isa::{Isa, dispatch},
    math::{exp, max_body, sum},
    simd::Simd,
};

/// Gradients below this share of `scale` become 0. They do not affect 32-bit sums, but their products are
/// subnormal numbers, which slow down a matrix product up to a hundred times.
const NEGLIGIBLE: f32 = 1e-24;

/// Replaces a row of scores by `scale` times its softmax, and returns the log-sum-exp of the scores. The
/// result is the gradient of `scale` times the log-sum-exp.
pub fn scaled_softmax(isa: Isa, row: &mut [f32], scale: f32) -> f64 {
    #[inline(always)]
    fn body<S: Simd>(row: &mut [f32], scale: f32) -> f64 {
        let greatest = max_body(row);
        let mut total = 0f64;
        // Parts of 4,096 in f32, whose sums are added in f64.
        for part in row.chunks_mut(4096) {
            for score in part.iter_mut() {
                let weight = exp::<S>(*score - greatest);
                *score = if weight < NEGLIGIBLE { 0.0 } else { weight };
            }
            total += f64::from(sum(part, |weight| weight));
        }
        let factor = (f64::from(scale) / total) as f32;
        row.iter_mut().for_each(|weight| *weight *= factor);
        f64::from(greatest) + total.ln()
    }
    dispatch!(isa, body(row: &mut [f32], scale: f32) -> f64)
}

/// The sum of a row's values.
#[must_use]
pub fn total(isa: Isa, row: &[f32]) -> f64 {
    #[inline(always)]
    fn body<S: Simd>(row: &[f32]) -> f64 {
        row.chunks(4096).map(|part| f64::from(sum(part, |value| value))).sum()
    }
    dispatch!(isa, body(row: &[f32]) -> f64)
}

/// ln(1 + e^x), without overflow.
#[inline(always)]
fn softplus<S: Simd>(x: f32) -> f32 {
    // ln(1 + y) = 2 artanh(y / (2 + y)), whose argument is at most 1/3: six terms of the series.
    let y = exp::<S>(-x.abs());
    let z = y / (2.0 + y);
    let square = z * z;
    let mut series = 1.0 / 11.0;
    for term in [1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0] {
        series = S::mul_add(series, square, term);
    }
    x.max(0.0) + 2.0 * z * series
}

/// Replaces each score `s` of a row by `scale (sigmoid(s) - target)`, the gradient of `scale` times the
/// binary cross-entropy ln(1 + e^s) - target s. Returns the sum of the cross-entropies.
pub fn scaled_sigmoid(isa: Isa, row: &mut [f32], target: f32, scale: f32) -> f64 {
    #[inline(always)]
    fn body<S: Simd>(row: &mut [f32], target: f32, scale: f32) -> f64 {
        let mut total = 0f64;
        for part in row.chunks_mut(4096) {
            total += f64::from(sum(part, |score| softplus::<S>(score) - target * score));
            for score in part {
                let gradient = 1.0 / (1.0 + exp::<S>(-*score)) - target;
                *score = if gradient.abs() < NEGLIGIBLE { 0.0 } else { scale * gradient };
            }
        }
        total
    }
    dispatch!(isa, body(row: &mut [f32], target: f32, scale: f32) -> f64)
}

/// The numbers of `values` that are greater than `bound`, and that equal it.
#[must_use]
pub fn count_from(isa: Isa, values: &[f32], bound: f32) -> (usize, usize) {
    #[inline(always)]
    fn body<S: Simd>(values: &[f32], bound: f32) -> (usize, usize) {
        let (mut greater, mut equal) = (0, 0);
        for part in values.chunks(4096) {
            let (mut above, mut same) = (0u32, 0u32);
            for value in part {
                above += u32::from(*value > bound);
                same += u32::from(*value == bound);
            }
            greater += above as usize;
            equal += same as usize;
        }
        (greater, equal)
    }
    dispatch!(isa, body(values: &[f32], bound: f32) -> (usize, usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Vec<f32> {
        (0..5000).map(|i| ((i * 37) % 101) as f32 / 8.0 - 6.0).collect()
    }

    #[test]
    fn a_row_becomes_its_scaled_softmax() {
        let scores = row();
        let total: f64 = scores.iter().map(|s| f64::from(*s).exp()).sum();
        for isa in Isa::available() {
            let mut found = scores.clone();
            let log = scaled_softmax(isa, &mut found, 3.0);
            assert!((log - total.ln()).abs() < 1e-5, "{isa:?} {log}");
            for (found, score) in found.iter().zip(&scores) {
                let expected = 3.0 * f64::from(*score).exp() / total;
                assert!((f64::from(*found) - expected).abs() < 1e-6 * expected.max(1e-3), "{isa:?}");
            }
        }
    }

    #[test]
    fn a_row_becomes_the_gradient_of_its_binary_cross_entropy() {
        let mut scores = row();
        scores.extend([90.0, -90.0, 0.0]);
        let target = 0.1;
        let loss: f64 = scores
            .iter()
            .map(|s| f64::from(*s))
            .map(|s| s.max(0.0) + (-s.abs()).exp().ln_1p() - f64::from(target) * s)
            .sum();
        for isa in Isa::available() {
            let mut found = scores.clone();
            let total = scaled_sigmoid(isa, &mut found, target, 0.5);
            assert!((total - loss).abs() < 1e-5 * loss, "{isa:?} {total} {loss}");
            for (found, score) in found.iter().zip(&scores) {
                let expected = 0.5 * (1.0 / (1.0 + (-f64::from(*score)).exp()) - f64::from(target));
                assert!((f64::from(*found) - expected).abs() < 1e-6, "{isa:?}");
            }
        }
    }

    #[test]
    fn no_gradient_is_a_subnormal_number() {
        let scores: Vec<f32> = (0..400).map(|i| -0.25 * i as f32).collect();
        for isa in Isa::available() {
            let (mut softmax, mut sigmoid) = (scores.clone(), scores.clone());
            scaled_softmax(isa, &mut softmax, 1e-4);
            scaled_sigmoid(isa, &mut sigmoid, 0.0, 1e-4);
            for row in [softmax, sigmoid] {
                assert!(row.iter().all(|value| *value == 0.0 || *value > 1e-29), "{isa:?}");
                // Values down to e^-55 are kept.
                assert!(row[..220].iter().all(|value| *value > 0.0) && row[250..] == [0.0; 150], "{isa:?}");
            }
        }
    }

    #[test]
    fn places_are_counted() {
        let mut values = row();
        values.push(f32::NAN);
        let bound = values[7];
        let greater = values.iter().filter(|value| **value > bound).count();
        let equal = values.iter().filter(|value| **value == bound).count();
        for isa in Isa::available() {
            assert_eq!(count_from(isa, &values, bound), (greater, equal));
        }
    }
}
