//! Batch normalisation with a rectifier, over runs of one group's values: statistics, values and gradients.

use crate::{
    isa::{Isa, dispatch},
    simd::Simd,
};

/// The number of parallel sums, because a single sum would wait for each addition.
const SUMS: usize = 16;

/// The normalisation of a group: `(value - mean) slope + shift`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalised {
    /// The group's mean.
    pub mean: f32,
    /// The inverse standard deviation times a scale.
    pub slope: f32,
    /// The shift.
    pub shift: f32,
}

impl Normalised {
    /// The normalised value.
    #[inline(always)]
    #[must_use]
    pub fn at(&self, value: f32) -> f32 {
        (value - self.mean) * self.slope + self.shift
    }

    /// Normalises a run of values, rectifies them and multiplies by `factor`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn rectify(&self, isa: Isa, values: &[f32], factor: f32, out: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(line: &Normalised, values: &[f32], factor: f32, out: &mut [f32]) {
            for (out, value) in out.iter_mut().zip(values) {
                *out = line.at(*value).max(0.0) * factor;
            }
        }
        assert_eq!(values.len(), out.len());
        let line = self;
        dispatch!(isa, body(line: &Normalised, values: &[f32], factor: f32, out: &mut [f32]));
    }
}

/// The gradients through a group's normalisation. With n values x, mean m, standard deviation 1 / r,
/// normalised values h = r (x - m), scale s and gradients g, those of x are r s (g - mean(g) - h mean(g h)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormalisedBack {
    /// The group's mean.
    pub mean: f32,
    /// r s
    pub factor: f32,
    /// mean(g)
    pub plain: f32,
    /// mean(g h) r
    pub pulled: f32,
}

impl NormalisedBack {
    /// The gradient of one value.
    #[inline(always)]
    #[must_use]
    pub fn at(&self, gradient: f32, value: f32) -> f32 {
        self.factor * (gradient - self.plain - (value - self.mean) * self.pulled)
    }

    /// Turns the gradients of a run of normalised values into those of the values.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn apply(&self, isa: Isa, values: &[f32], gradients: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(back: &NormalisedBack, values: &[f32], gradients: &mut [f32]) {
            for (gradient, value) in gradients.iter_mut().zip(values) {
                *gradient = back.at(*gradient, *value);
            }
        }
        assert_eq!(values.len(), gradients.len());
        let back = self;
        dispatch!(isa, body(back: &NormalisedBack, values: &[f32], gradients: &mut [f32]));
    }
}

/// The mean of a run of values, and the sum of their squared deviations.
#[must_use]
pub fn mean_and_spread(isa: Isa, values: &[f32]) -> (f64, f64) {
    #[inline(always)]
    fn body<S: Simd>(values: &[f32]) -> (f64, f64) {
        let (whole, rest) = values.as_chunks::<SUMS>();
        let mut sums = [0f32; SUMS];
        for values in whole {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value;
            }
        }
        for (sum, value) in sums.iter_mut().zip(rest) {
            *sum += value;
        }
        let mean = total(sums) / values.len() as f64;
        let centre = mean as f32;
        let mut spreads = [0f32; SUMS];
        for values in whole {
            for (sum, value) in spreads.iter_mut().zip(values) {
                *sum += (value - centre) * (value - centre);
            }
        }
        for (sum, value) in spreads.iter_mut().zip(rest) {
            *sum += (value - centre) * (value - centre);
        }
        (mean, total(spreads))
    }
    dispatch!(isa, body(values: &[f32]) -> (f64, f64))
}

/// Multiplies the gradients of a run by `factor` if the rectifier's result in `active` is positive, and sets
/// the others to zero. Returns the sums of the gradients, and of those times the deviations of `values` from
/// `mean`.
///
/// # Panics
/// If the lengths differ.
pub fn rectify_back(
    isa: Isa,
    (active, factor): (&[f32], f32),
    (values, mean): (&[f32], f32),
    gradients: &mut [f32],
) -> [f64; 2] {
    #[inline(always)]
    fn body<S: Simd>(
        active: &[f32],
        factor: f32,
        values: &[f32],
        mean: f32,
        gradients: &mut [f32],
    ) -> [f64; 2] {
        let (mut plain, mut pulled) = ([0f32; SUMS], [0f32; SUMS]);
        let (actives, rest_active) = active.as_chunks::<SUMS>();
        let (runs, rest_values) = values.as_chunks::<SUMS>();
        let (whole, rest) = gradients.as_chunks_mut::<SUMS>();
        for ((gradients, active), values) in whole.iter_mut().zip(actives).zip(runs) {
            for at in 0..SUMS {
                let gradient = if active[at] > 0.0 { gradients[at] * factor } else { 0.0 };
                gradients[at] = gradient;
                plain[at] += gradient;
                pulled[at] += gradient * (values[at] - mean);
            }
        }
        for (at, gradient) in rest.iter_mut().enumerate() {
            *gradient = if rest_active[at] > 0.0 { *gradient * factor } else { 0.0 };
            plain[at] += *gradient;
            pulled[at] += *gradient * (rest_values[at] - mean);
        }
        [total(plain), total(pulled)]
    }
    assert!(active.len() == gradients.len() && values.len() == gradients.len());
    dispatch!(isa, body(
        active: &[f32],
        factor: f32,
        values: &[f32],
        mean: f32,
        gradients: &mut [f32],
    ) -> [f64; 2])
}

/// The sum of sums.
#[inline(always)]
fn total(sums: [f32; SUMS]) -> f64 {
    sums.iter().map(|sum| f64::from(*sum)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(count: usize, pace: f32) -> Vec<f32> {
        (0..count).map(|at| (at as f32 * pace).sin() + 0.3).collect()
    }

    #[test]
    fn every_instruction_set_follows_the_formulas() {
        for isa in Isa::available() {
            for count in [1, 16, 37] {
                let (values, gradients) = (wave(count, 0.7), wave(count, 1.3));
                let (mean, spread) = mean_and_spread(isa, &values);
                let expected = values.iter().map(|value| f64::from(*value)).sum::<f64>() / count as f64;
                assert!((mean - expected).abs() < 1e-6, "{isa:?} {count}");
                let expected: f64 = values.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum();
                assert!((spread - expected).abs() < 1e-5, "{isa:?} {count}");

                let line = Normalised { mean: 0.2, slope: 1.5, shift: -0.1 };
                let mut active = vec![9.0; count];
                line.rectify(isa, &values, 2.0, &mut active);
                for (active, value) in active.iter().zip(&values) {
                    let expected = ((value - 0.2) * 1.5 - 0.1).max(0.0) * 2.0;
                    assert!((active - expected).abs() < 1e-6, "{isa:?} {count}");
                }

                let mut to = gradients.clone();
                let sums = rectify_back(isa, (&active, 2.0), (&values, 0.2), &mut to);
                let mut expected = [0.0; 2];
                for ((to, gradient), (active, value)) in
                    to.iter().zip(&gradients).zip(active.iter().zip(&values))
                {
                    let passes = if *active > 0.0 { 2.0 } else { 0.0 };
                    assert_eq!(*to, gradient * passes, "{isa:?} {count}");
                    expected[0] += f64::from(*to);
                    expected[1] += f64::from(*to) * (f64::from(*value) - 0.2);
                }
                for (sum, expected) in sums.iter().zip(expected) {
                    assert!((sum - expected).abs() < 1e-5, "{isa:?} {count}");
                }

                let back = NormalisedBack { mean: 0.2, factor: 1.5, plain: 0.01, pulled: 0.03 };
                let before = to.clone();
                back.apply(isa, &values, &mut to);
                for ((to, before), value) in to.iter().zip(before).zip(&values) {
                    let expected = 1.5 * (before - 0.01 - (value - 0.2) * 0.03);
                    assert!((to - expected).abs() < 1e-6, "{isa:?} {count}");
                }
            }
        }
    }
}
