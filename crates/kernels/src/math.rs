//! Scalar functions and row functions in forms that the compiler vectorises.

use crate::{
    isa::{Isa, dispatch},
    rows::Rows,
    simd::{LANES, Simd, sum_lanes},
    thread_pool::ThreadPool,
};

/// Adding and subtracting this rounds a value below 2^22 to the nearest integer, ties to even: in a sum of this size
/// the last bit is worth 1.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// e to the power of `x`, within 2 units in the last place; 0 below -87.3.
#[inline(always)]
pub(crate) fn exp<S: Simd>(x: f32) -> f32 {
    let clamped = x.clamp(-87.3, 88.7);
    let rounded = S::mul_add(clamped, std::f32::consts::LOG2_E, ROUND);
    let power = rounded - ROUND;
    // ln 2 in two parts, so that the remainder is exact (Cody and Waite 1980).
    let rest = S::mul_add(power, -0.693_359_4, clamped);
    let rest = S::mul_add(power, 2.121_944_4e-4, rest);
    // The minimax polynomial of Cephes' expf.
    let mut y = 1.987_569_1e-4;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1] {
        y = S::mul_add(y, rest, coefficient);
    }
    let y = S::mul_add(y * rest, rest, rest) + 1.0;
    let bits = rounded.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    if x < -87.3 { 0.0 } else { y * f32::from_bits(bits) }
}

/// 2 to the power of `x`, which is below 127, within 2 units in the last place; 0 below -100. It needs half
/// as many operations as [`exp`].
#[inline(always)]
fn exp2<S: Simd>(x: f32) -> f32 {
    let rounded = x + ROUND;
    let rest = x - (rounded - ROUND);
    // The minimax polynomial of the relative error for a remainder of at most a half whose value and slope at 0 are exact.
    let mut y = 0.001_330_060_7;
    for coefficient in [0.009_669_691, 0.055_505_585, 0.240_222_83, std::f32::consts::LN_2, 1.0] {
        y = S::mul_add(y, rest, coefficient);
    }
    // The rounded power is added to the exponent; the bits of `ROUND` are shifted out.
    let bits = y.to_bits().wrapping_add(rounded.to_bits() << 23);
    if x < -100.0 { 0.0 } else { f32::from_bits(bits) }
}

/// The error function within 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26).
#[inline(always)]
pub(crate) fn erf<S: Simd>(x: f32) -> f32 {
    let size = x.abs();
    let t = 1.0 / S::mul_add(0.327_591_1, size, 1.0);
    let mut y = 1.061_405_4;
    for coefficient in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        y = S::mul_add(y, t, coefficient);
    }
    (1.0 - y * t * exp2::<S>(size * size * -std::f32::consts::LOG2_E)).copysign(x)
}

#[inline(always)]
pub(crate) fn tanh<S: Simd>(x: f32) -> f32 {
    let e = exp::<S>(2.0 * x.clamp(-20.0, 20.0));
    // Near 0 the quotient loses the digits that the series x - x^3/3 + 2x^5/15 - 17x^7/315 keeps.
    let square = x * x;
    let near = x * S::mul_add(
        square,
        S::mul_add(square, S::mul_add(square, -0.053_968_254, 0.133_333_33), -0.333_333_34),
        1.0,
    );
    if x.abs() < 0.1 { near } else { (e - 1.0) / (e + 1.0) }
}

/// The mean of `Laplace`, and the inverse of sqrt(2) times its standard deviation: sqrt(2 pi).
pub(crate) const LAPLACE_MEAN: f32 = std::f32::consts::FRAC_1_SQRT_2;
pub(crate) const LAPLACE_SCALE: f32 = 2.506_628_3;

/// `tanh(ln(1 + e^x))`, which is `(e^2x + 2 e^x) / (e^2x + 2 e^x + 2)`, and its derivative.
#[inline(always)]
pub(crate) fn mish_share<S: Simd>(x: f32) -> (f32, f32) {
    // Above 20 the share is 1 in f32.
    let e = exp::<S>(x.min(20.0));
    let part = e * (e + 2.0);
    let whole = part + 2.0;
    (part / whole, 4.0 * e * (e + 1.0) / (whole * whole))
}

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `max(x, 0)^2` (So et al. 2021).
    SquaredRelu,
    /// `x Phi(x)` with the error function (Hendrycks and Gimpel 2016).
    Gelu,
    /// The same by the tanh approximation.
    GeluTanh,
    /// `x / (1 + e^-x)`
    Silu,
    /// The hyperbolic tangent.
    Tanh,
    /// `Gelu` between -10 and 10.
    ClippedGelu,
    /// `x / (1 + e^(-1.702 x))` (Hendrycks and Gimpel 2016).
    QuickGelu,
    /// `x tanh(ln(1 + e^x))` (Misra 2019).
    Mish,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// `x` above 0, and `x / 100` below.
    LeakyRelu,
    /// `min(max(x, 0), 6)`
    Relu6,
    /// `x min(max(x + 3, 0), 6) / 6` (Howard et al. 2019).
    HardSwish,
    /// The share of a normal distribution below `x`, of mean sqrt(1/2) and standard deviation sqrt(1 / (4 pi)) (Ma et al. 2022).
    Laplace,
    /// `x` itself.
    Linear,
}

impl Activation {
    #[inline(always)]
    pub(crate) fn apply<S: Simd>(self, values: &mut [f32]) {
        match self {
            Self::Relu => values.iter_mut().for_each(|x| *x = x.max(0.0)),
            Self::SquaredRelu => values.iter_mut().for_each(|x| *x = x.max(0.0) * x.max(0.0)),
            Self::Gelu => values
                .iter_mut()
                .for_each(|x| *x = 0.5 * *x * (1.0 + erf::<S>(*x * std::f32::consts::FRAC_1_SQRT_2))),
            Self::GeluTanh => values.iter_mut().for_each(|x| {
                // sqrt(2 / pi) (x + 0.044715 x^3)
                let inner = 0.797_884_6 * S::mul_add(0.044_715 * *x * *x, *x, *x);
                *x = 0.5 * *x * (1.0 + tanh::<S>(inner));
            }),
            Self::Silu => values.iter_mut().for_each(|x| *x /= 1.0 + exp::<S>(-*x)),
            Self::Tanh => values.iter_mut().for_each(|x| *x = tanh::<S>(*x)),
            Self::ClippedGelu => {
                Self::Gelu.apply::<S>(values);
                values.iter_mut().for_each(|x| *x = x.clamp(-10.0, 10.0));
            }
            Self::QuickGelu => values.iter_mut().for_each(|x| *x /= 1.0 + exp::<S>(-1.702 * *x)),
            Self::Mish => values.iter_mut().for_each(|x| *x *= mish_share::<S>(*x).0),
            Self::Sigmoid => values.iter_mut().for_each(|x| *x = 1.0 / (1.0 + exp::<S>(-*x))),
            Self::LeakyRelu => values.iter_mut().for_each(|x| *x = x.max(0.01 * *x)),
            Self::Relu6 => values.iter_mut().for_each(|x| *x = x.clamp(0.0, 6.0)),
            Self::HardSwish => values.iter_mut().for_each(|x| *x *= (*x + 3.0).clamp(0.0, 6.0) / 6.0),
            Self::Laplace => {
                values
                    .iter_mut()
                    .for_each(|x| *x = 0.5 * (1.0 + erf::<S>((*x - LAPLACE_MEAN) * LAPLACE_SCALE)));
            }
            Self::Linear => {}
        }
    }

    /// Applies the function to every value.
    pub fn forward(self, isa: Isa, values: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(activation: Activation, values: &mut [f32]) {
            activation.apply::<S>(values);
        }
        let activation = self;
        dispatch!(isa, body(activation: Activation, values: &mut [f32]));
    }
}

/// Sums `term` of every value in 32 lanes, which can be vectorised, unlike a plain sum.
#[inline(always)]
pub(crate) fn sum(values: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += term(*value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += term(*value);
    }
    sum_lanes(lanes)
}

#[inline(always)]
pub(crate) fn max_body(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let raise = |lane: &mut f32, value: f32| *lane = if value > *lane { value } else { *lane };
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            raise(&mut lanes[i], chunk[i]);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        raise(lane, *value);
    }
    // By halves: a sequential sum would wait for each addition.
    for width in [16, 8, 4, 2, 1] {
        for i in 0..width {
            let upper = lanes[width + i];
            raise(&mut lanes[i], upper);
        }
    }
    lanes[0]
}

/// The largest of `values`; minus infinity for none.
#[must_use]
pub fn max(isa: Isa, values: &[f32]) -> f32 {
    #[inline(always)]
    fn body<S: Simd>(values: &[f32]) -> f32 {
        max_body(values)
    }
    dispatch!(isa, body(values: &[f32]) -> f32)
}

/// The sum of e to the power of each value minus `offset`.
#[must_use]
pub fn exp_sum(isa: Isa, values: &[f32], offset: f32) -> f64 {
    #[inline(always)]
    fn body<S: Simd>(values: &[f32], offset: f32) -> f64 {
        // Parts of 4,096 in f32, whose sums are added in f64.
        values.chunks(4096).map(|part| f64::from(sum(part, |value| exp::<S>(value - offset)))).sum()
    }
    dispatch!(isa, body(values: &[f32], offset: f32) -> f64)
}

/// Replaces `scores`, times `scale`, which is above 0, by their exponentials minus the greatest, and returns
/// the inverse sum.
#[inline(always)]
pub(crate) fn softmax_body<S: Simd>(scores: &mut [f32], scale: f32) -> f32 {
    let scale = scale * std::f32::consts::LOG2_E;
    let greatest = max_body(scores) * scale;
    let mut lanes = [0f32; LANES];
    let (chunks, rest) = scores.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            chunk[i] = exp2::<S>(S::mul_add(chunk[i], scale, -greatest));
            lanes[i] += chunk[i];
        }
    }
    for (lane, score) in lanes.iter_mut().zip(rest) {
        *score = exp2::<S>(S::mul_add(*score, scale, -greatest));
        *lane += *score;
    }
    1.0 / sum_lanes(lanes)
}

/// Normalisation of rows.
#[derive(Clone, Debug)]
pub struct Norm {
    /// The scale of normalised values.
    pub weight: Vec<f32>,
    /// The shift. Without it, this is RMS normalisation (Zhang and Sennrich 2019), which does not subtract
    /// the mean; otherwise it is layer normalisation (Ba et al. 2016).
    pub bias: Option<Vec<f32>>,
    /// The constant added to the variance or mean square.
    pub eps: f32,
}

impl Norm {
    #[inline(always)]
    fn body<S: Simd>(norm: &Norm, values: &mut [f32]) {
        let count = values.len() as f32;
        let weight = &norm.weight[..values.len()];
        if let Some(bias) = &norm.bias {
            let mean = sum(values, |value| value) / count;
            let variance = sum(values, |value| (value - mean) * (value - mean)) / count;
            let scale = 1.0 / (variance + norm.eps).sqrt();
            for ((value, weight), bias) in values.iter_mut().zip(weight).zip(bias) {
                *value = S::mul_add((*value - mean) * scale, *weight, *bias);
            }
        } else {
            let scale = 1.0 / (sum(values, |value| value * value) / count + norm.eps).sqrt();
            for (value, weight) in values.iter_mut().zip(weight) {
                *value *= scale * *weight;
            }
        }
    }

    /// Normalises every row in place.
    ///
    /// # Panics
    /// If the width of the rows differs from that of the norm.
    pub fn forward(&self, isa: Isa, pool: &ThreadPool, rows: &mut Rows) {
        assert_eq!(rows.width(), self.weight.len());
        let shared = rows.shared();
        each_row(pool, shared.count, &|at| {
            // SAFETY: every row belongs to one part, and the rows are borrowed until all parts are finished.
            let values = unsafe { shared.part(at, 0, shared.width) };
            self.one(isa, values);
        });
    }

    /// Normalises one row in place.
    ///
    /// # Panics
    /// If it is longer than the norm is wide.
    pub fn one(&self, isa: Isa, values: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(norm: &Norm, values: &mut [f32]) {
            Norm::body::<S>(norm, values);
        }
        let norm = self;
        dispatch!(isa, body(norm: &Norm, values: &mut [f32]));
    }

    /// Writes the normalised rows to `out` and sets its shape.
    ///
    /// # Panics
    /// If the width of the rows differs from that of the norm.
    pub fn forward_to(&self, isa: Isa, pool: &ThreadPool, rows: &Rows, out: &mut Rows) {
        assert_eq!(rows.width(), self.weight.len());
        out.reshape(rows.count(), rows.width());
        let shared = out.shared();
        each_row(pool, shared.count, &|at| {
            // SAFETY: every row belongs to one part, and the rows are borrowed until all parts are finished.
            let values = unsafe { shared.part(at, 0, shared.width) };
            values.copy_from_slice(rows.row(at));
            self.one(isa, values);
        });
    }
}

/// Calls `work` for each of `count` rows, in portions that are large enough for a hand-over.
pub(crate) fn each_row(pool: &ThreadPool, count: usize, work: &(dyn Fn(usize) + Sync)) {
    const PORTION: usize = 16;
    pool.run(count.div_ceil(PORTION), &|part| {
        (part * PORTION..((part + 1) * PORTION).min(count)).for_each(work);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f32, expected: f64, tolerance: f64) -> bool {
        (f64::from(found) - expected).abs() <= tolerance * expected.abs().max(1e-3)
    }

    #[test]
    fn the_exponential_is_exact_to_the_last_digits_and_ends_in_zero() {
        for isa in Isa::available() {
            for i in -8700..880 {
                let x = i as f32 / 100.0;
                let found = exp_sum(isa, &[x], 0.0);
                let expected = f64::from(x).exp();
                assert!((found - expected).abs() <= 3e-7 * expected, "{isa:?} {x}: {found} for {expected}");
            }
            assert_eq!(exp_sum(isa, &[-1e30, f32::NEG_INFINITY, -88.0], 0.0), 0.0);
        }
    }

    #[test]
    fn powers_of_two_are_exact_to_the_last_digits_and_end_in_zero() {
        use crate::simd::Portable;
        for i in -10_000..1_200 {
            let x = i as f32 / 100.0;
            let (found, expected) = (exp2::<Portable>(x), f64::from(x).exp2());
            assert!((f64::from(found) - expected).abs() <= 3e-7 * expected, "{x}: {found} for {expected}");
        }
        assert_eq!([exp2::<Portable>(-100.1), exp2::<Portable>(f32::NEG_INFINITY)], [0.0; 2]);
        assert!(exp2::<Portable>(f32::NAN).is_nan());
    }

    #[test]
    fn clipped_and_saturated_activations_have_their_bounds() {
        for isa in Isa::available() {
            let of = |activation: Activation| {
                let mut values = [-100.0, 100.0];
                activation.forward(isa, &mut values);
                values
            };
            assert_eq!(of(Activation::ClippedGelu), [0.0, 10.0]);
            assert_eq!(of(Activation::Relu6), [0.0, 6.0]);
            assert_eq!(of(Activation::HardSwish), [0.0, 100.0]);
            assert_eq!(of(Activation::Mish)[1], 100.0);
        }
    }

    #[test]
    fn activations_are_what_their_formulas_say() {
        // erf by its series, 2/sqrt(pi) sum (-1)^n x^(2n+1) / (n! (2n+1)), in f64.
        let erf = |x: f64| {
            let (mut term, mut sum) = (x, x);
            for n in 1..200 {
                term *= -x * x / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            sum * 2.0 / std::f64::consts::PI.sqrt()
        };
        for isa in Isa::available() {
            for i in -400..=400 {
                let x = f64::from(i) / 100.0;
                let of = |activation: Activation| {
                    let mut value = [x as f32];
                    activation.forward(isa, &mut value);
                    value[0]
                };
                let cube = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                let gelu = 0.5 * x * (1.0 + erf(x / 2f64.sqrt()));
                assert!((f64::from(of(Activation::Gelu)) - gelu).abs() < 1e-6, "gelu {x}");
                assert!(
                    close(of(Activation::GeluTanh), 0.5 * x * (1.0 + cube.tanh()), 2e-4),
                    "gelu tanh {x}"
                );
                assert!(close(of(Activation::Silu), x / (1.0 + (-x).exp()), 1e-5), "silu {x}");
                assert!(close(of(Activation::Tanh), x.tanh(), 1e-5), "tanh {x}");
                assert_eq!(of(Activation::ClippedGelu), of(Activation::Gelu), "gelu 10 {x}");
                let quick = x / (1.0 + (-1.702 * x).exp());
                assert!(close(of(Activation::QuickGelu), quick, 1e-5), "quick gelu {x}");
                assert!(close(of(Activation::Mish), x * x.exp().ln_1p().tanh(), 1e-5), "mish {x}");
                assert!(close(of(Activation::Sigmoid), 1.0 / (1.0 + (-x).exp()), 1e-5), "sigmoid {x}");
                let hard = x * (x + 3.0).clamp(0.0, 6.0) / 6.0;
                assert!(close(of(Activation::HardSwish), hard, 1e-5), "hard swish {x}");
                // The series of erf loses its digits far from 0.
                let distance = ((x - 0.5f64.sqrt()) * (2.0 * std::f64::consts::PI).sqrt()).clamp(-4.5, 4.5);
                let share = 0.5 * (1.0 + erf(distance));
                assert!((f64::from(of(Activation::Laplace)) - share).abs() < 1e-6, "laplace {x}");
                let leaky = if x > 0.0 { x as f32 } else { 0.01 * x as f32 };
                assert_eq!(of(Activation::LeakyRelu), leaky);
                assert_eq!(of(Activation::Relu6), (x as f32).clamp(0.0, 6.0));
                assert_eq!(of(Activation::Linear), x as f32);
                assert_eq!(of(Activation::Relu), (x as f32).max(0.0));
                assert_eq!(of(Activation::SquaredRelu), (x as f32).max(0.0).powi(2));
            }
        }
    }

    #[test]
    fn a_row_is_normalised_by_mean_and_variance_or_by_its_mean_square() {
        let values: Vec<f32> = (0..70).map(|i| (i * i % 13) as f32 - 4.0).collect();
        let n = values.len() as f64;
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        let variance = values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n;
        let square = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n;
        let weight: Vec<f32> = (0..70).map(|i| 0.5 + i as f32 / 70.0).collect();
        for isa in Isa::available() {
            for bias in [None, Some(vec![0.25; 70])] {
                let norm = Norm { weight: weight.clone(), bias, eps: 1e-5 };
                let mut rows = Rows::new(3, 70);
                (0..3).for_each(|at| rows.row_mut(at).copy_from_slice(&values));
                let mut out = Rows::default();
                norm.forward_to(isa, ThreadPool::global(), &rows, &mut out);
                norm.forward(isa, ThreadPool::global(), &mut rows);
                for i in 0..70 {
                    let (value, weight) = (f64::from(values[i]), f64::from(weight[i]));
                    let expected = match norm.bias {
                        Some(_) => (value - mean) / (variance + 1e-5).sqrt() * weight + 0.25,
                        None => value / (square + 1e-5).sqrt() * weight,
                    };
                    assert!((f64::from(rows.row(2)[i]) - expected).abs() < 1e-5, "{isa:?}");
                    assert_eq!(rows.row(2)[i], out.row(0)[i]);
                }
            }
        }
    }
}
