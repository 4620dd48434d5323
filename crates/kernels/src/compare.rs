//! Similarity of vectors, and its gradient.

use crate::{
    isa::{Isa, dispatch},
    simd::{LANES, Simd, sum_lanes},
};

/// A similarity of two vectors; greater is more similar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The inner product.
    Dot,
    /// The sum of absolute differences, negated.
    L1,
    /// The Euclidean distance, negated.
    L2,
    /// Complex vectors, all real parts before all imaginary ones: the sum of the moduli of the differences,
    /// negated.
    Modulus,
}

/// Sums `term` over all positions in lanes, in a fixed order.
#[inline(always)]
fn sum(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += term(*a, *b);
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane += term(*a, *b);
    }
    sum_lanes(lanes)
}

/// The sum of `term` of the differences of real and imaginary parts.
#[inline(always)]
fn complex_sum(a: &[f32], b: &[f32]) -> f32 {
    let half = a.len() / 2;
    let ((a_re, a_im), (b_re, b_im)) = (a.split_at(half), b.split_at(half));
    let mut lanes = [0f32; LANES];
    let whole = half / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        let (a_re, a_im) = (&a_re[at..at + LANES], &a_im[at..at + LANES]);
        let (b_re, b_im) = (&b_re[at..at + LANES], &b_im[at..at + LANES]);
        for lane in 0..LANES {
            let (re, im) = (a_re[lane] - b_re[lane], a_im[lane] - b_im[lane]);
            lanes[lane] += (re * re + im * im).sqrt();
        }
    }
    for at in whole..half {
        let (re, im) = (a_re[at] - b_re[at], a_im[at] - b_im[at]);
        lanes[at - whole] += (re * re + im * im).sqrt();
    }
    sum_lanes(lanes)
}

impl Comparison {
    #[inline(always)]
    fn score<S: Simd>(self, a: &[f32], b: &[f32]) -> f32 {
        match self {
            Self::Dot => sum(a, b, |a, b| a * b),
            Self::L1 => -sum(a, b, |a, b| (a - b).abs()),
            Self::L2 => -sum(a, b, |a, b| (a - b) * (a - b)).sqrt(),
            Self::Modulus => -complex_sum(a, b),
        }
    }

    /// Writes the similarity of `query` to each of the consecutive `rows`.
    ///
    /// # Panics
    /// If the number of rows differs from the length of `out`.
    pub fn scores(self, isa: Isa, query: &[f32], rows: &[f32], out: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(comparison: Comparison, query: &[f32], rows: &[f32], out: &mut [f32]) {
            let rows = rows.chunks_exact(query.len());
            match comparison {
                // The measure is constant in each loop, so that a loop has one formula.
                Comparison::Dot => {
                    rows.zip(out).for_each(|(row, out)| *out = Comparison::Dot.score::<S>(query, row))
                }
                Comparison::L1 => {
                    rows.zip(out).for_each(|(row, out)| *out = Comparison::L1.score::<S>(query, row))
                }
                Comparison::L2 => {
                    rows.zip(out).for_each(|(row, out)| *out = Comparison::L2.score::<S>(query, row))
                }
                Comparison::Modulus => {
                    rows.zip(out).for_each(|(row, out)| *out = Comparison::Modulus.score::<S>(query, row))
                }
            }
        }
        assert_eq!(rows.len(), query.len() * out.len());
        let comparison = self;
        dispatch!(isa, body(comparison: Comparison, query: &[f32], rows: &[f32], out: &mut [f32]));
    }

    /// Adds `by` times the gradient of the score of `a` and `b` with respect to `a` to `out`. `score` is that
    /// score. The gradient with respect to `b` is that of the swapped pair. At distance 0, which has no
    /// gradient, nothing is added.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add_gradient(self, isa: Isa, by: f32, score: f32, a: &[f32], b: &[f32], out: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(comparison: Comparison, by: f32, score: f32, a: &[f32], b: &[f32], out: &mut [f32]) {
            match comparison {
                Comparison::Dot => {
                    out.iter_mut().zip(b).for_each(|(out, b)| *out = S::mul_add(by, *b, *out));
                }
                Comparison::L1 => {
                    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
                        let away = if a > b { by } else { -by };
                        *out -= if a == b { 0.0 } else { away };
                    }
                }
                Comparison::L2 => {
                    // The score is the negative distance.
                    let by = if score < 0.0 { by / score } else { 0.0 };
                    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
                        *out = S::mul_add(by, *a - *b, *out);
                    }
                }
                Comparison::Modulus => {
                    let half = a.len() / 2;
                    let ((a_re, a_im), (b_re, b_im)) = (a.split_at(half), b.split_at(half));
                    let (out_re, out_im) = out.split_at_mut(half);
                    let parts = a_re.iter().zip(a_im).zip(b_re.iter().zip(b_im));
                    for (((a_re, a_im), (b_re, b_im)), (re_out, im_out)) in
                        parts.zip(out_re.iter_mut().zip(out_im))
                    {
                        let (re, im) = (a_re - b_re, a_im - b_im);
                        let square = re * re + im * im;
                        let scale = if square > 0.0 { by / square.sqrt() } else { 0.0 };
                        *re_out -= scale * re;
                        *im_out -= scale * im;
                    }
                }
            }
        }
        assert!(a.len() == b.len() && a.len() == out.len());
        let comparison = self;
        dispatch!(isa, body(
            comparison: Comparison,
            by: f32,
            score: f32,
            a: &[f32],
            b: &[f32],
            out: &mut [f32],
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(seed: usize) -> Vec<f32> {
        // 74 = 2 * 37: whole lanes and a rest, in each half as well.
        (0..74).map(|i| ((i * 7 + seed * 13) % 11) as f32 * 0.3 - 1.4).collect()
    }

    fn plain(comparison: Comparison, a: &[f32], b: &[f32]) -> f64 {
        let pairs = a.iter().zip(b).map(|(a, b)| (f64::from(*a), f64::from(*b)));
        match comparison {
            Comparison::Dot => pairs.map(|(a, b)| a * b).sum(),
            Comparison::L1 => -pairs.map(|(a, b)| (a - b).abs()).sum::<f64>(),
            Comparison::L2 => -pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt(),
            Comparison::Modulus => {
                let d: Vec<f64> = pairs.map(|(a, b)| a - b).collect();
                -(0..37).map(|i| d[i].hypot(d[i + 37])).sum::<f64>()
            }
        }
    }

    #[test]
    fn scores_and_gradients_are_those_of_the_formulas() {
        let all = [Comparison::Dot, Comparison::L1, Comparison::L2, Comparison::Modulus];
        for isa in Isa::available() {
            for comparison in all {
                let (a, b) = (vector(1), vector(5));
                let rows = [b.clone(), vector(2)].concat();
                let mut scores = [0.0; 2];
                comparison.scores(isa, &a, &rows, &mut scores);
                assert!(
                    (f64::from(scores[0]) - plain(comparison, &a, &b)).abs() < 1e-4,
                    "{isa:?} {comparison:?}"
                );
                assert!((f64::from(scores[1]) - plain(comparison, &a, &rows[74..])).abs() < 1e-4);
                let mut gradient = vec![1.0; 74];
                comparison.add_gradient(isa, 2.0, scores[0], &a, &b, &mut gradient);
                for i in 0..74 {
                    let moved = |by: f32| {
                        let mut a = a.clone();
                        a[i] += by;
                        plain(comparison, &a, &b)
                    };
                    let numeric = (moved(1e-3) - moved(-1e-3)) / 2e-3;
                    let found = (f64::from(gradient[i]) - 1.0) / 2.0;
                    assert!((found - numeric).abs() < 2e-3, "{isa:?} {comparison:?} {i}: {found} {numeric}");
                }
            }
        }
    }

    #[test]
    fn equal_vectors_have_no_gradient_of_their_distance() {
        for comparison in [Comparison::L1, Comparison::L2, Comparison::Modulus] {
            let a = vector(3);
            let mut out = vec![0.0; 74];
            comparison.add_gradient(Isa::detected(), 1.0, 0.0, &a, &a, &mut out);
            assert!(out.iter().all(|value| *value == 0.0), "{comparison:?}");
        }
    }
}
