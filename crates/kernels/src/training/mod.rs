//! Training kernels: dropout without stored masks, and the gradients of normalisation, softmax and
//! activations, over contiguous rows.

use crate::{
    isa::{Isa, dispatch},
    math::{Activation, LAPLACE_MEAN, LAPLACE_SCALE, erf, exp, mish_share, sum, tanh},
    simd::{LANES, Simd, sum_lanes},
};

/// Inverted dropout (Srivastava et al. 2014). The mask is a function of a seed and of a value's index, so
/// that the backward pass recomputes it instead of storing it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    seed: [u32; 2],
    /// Values with a smaller hash are dropped.
    threshold: u32,
    kept: f32,
}

impl Dropout {
    /// Drops each value with probability `rate`, from 0 to below 1, in steps of 2^-32.
    #[must_use]
    pub fn new(rate: f64, seed: u64) -> Self {
        let threshold = (rate.clamp(0.0, 1.0) * 2f64.powi(32)) as u32;
        let kept = 1.0 / (1.0 - f64::from(threshold) / 2f64.powi(32));
        Self { seed: [seed as u32, (seed >> 32) as u32], threshold, kept: kept as f32 }
    }

    /// The factor of value `at`.
    #[inline(always)]
    fn factor(&self, at: u32) -> f32 {
        // The finaliser of MurmurHash3 (Appleby 2011) after a Weyl sequence.
        let mut hash = at.wrapping_mul(0x9e37_79b1).wrapping_add(self.seed[0]);
        hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b) ^ self.seed[1];
        hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
        hash ^= hash >> 16;
        if hash < self.threshold { 0.0 } else { self.kept }
    }

    #[inline(always)]
    fn body(&self, first: usize, values: &mut [f32]) {
        if self.threshold == 0 {
            return;
        }
        let first = first as u32;
        for (at, value) in (0u32..).zip(values) {
            *value *= self.factor(first.wrapping_add(at));
        }
    }

    /// Multiplies `values`, the first of which has the index `first`, by 0 or by 1 / (1 - rate).
    pub fn apply(&self, isa: Isa, first: usize, values: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(dropout: &Dropout, first: usize, values: &mut [f32]) {
            dropout.body(first, values);
        }
        let dropout = self;
        dispatch!(isa, body(dropout: &Dropout, first: usize, values: &mut [f32]));
    }
}

/// The sum of `term` over two rows, in lanes.
#[inline(always)]
fn sum_pairs(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let ((a_chunks, a_rest), (b_chunks, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += term(*a, *b);
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane += term(*a, *b);
    }
    sum_lanes(lanes)
}

/// Adds every row of `values` to `sums`.
pub fn add_columns(isa: Isa, values: &[f32], sums: &mut [f32]) {
    #[inline(always)]
    fn body<S: Simd>(values: &[f32], sums: &mut [f32]) {
        for row in values.chunks_exact(sums.len()) {
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
    }
    dispatch!(isa, body(values: &[f32], sums: &mut [f32]));
}

/// Multiplies `values` by `factors`, elementwise.
///
/// # Panics
/// If the lengths differ.
pub fn multiply(isa: Isa, values: &mut [f32], factors: &[f32]) {
    #[inline(always)]
    fn body<S: Simd>(values: &mut [f32], factors: &[f32]) {
        values.iter_mut().zip(factors).for_each(|(value, factor)| *value *= factor);
    }
    assert_eq!(values.len(), factors.len());
    dispatch!(isa, body(values: &mut [f32], factors: &[f32]));
}

/// Writes `scale (e^(x - offset) - less)` of each of `values` to `out`.
///
/// # Panics
/// If the lengths differ.
pub fn scaled_exp(isa: Isa, values: &[f32], offset: f32, less: f32, scale: f32, out: &mut [f32]) {
    #[inline(always)]
    fn body<S: Simd>(values: &[f32], offset: f32, less: f32, scale: f32, out: &mut [f32]) {
        for (x, y) in values.iter().zip(out) {
            *y = scale * (exp::<S>(x - offset) - less);
        }
    }
    assert_eq!(values.len(), out.len());
    dispatch!(isa, body(values: &[f32], offset: f32, less: f32, scale: f32, out: &mut [f32]));
}

impl Activation {
    /// The derivative at `x`, and the value.
    #[inline(always)]
    fn both<S: Simd>(self, x: f32) -> (f32, f32) {
        match self {
            Self::Relu => (if x > 0.0 { 1.0 } else { 0.0 }, x.max(0.0)),
            Self::SquaredRelu => (2.0 * x.max(0.0), x.max(0.0) * x.max(0.0)),
            Self::Gelu => {
                // Abramowitz and Stegun 7.1.26 at |x| / sqrt 2, whose exponential is that of the density too.
                let t = 1.0 / S::mul_add(0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2, x.abs(), 1.0);
                let mut y = 1.061_405_4;
                for coefficient in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
                    y = S::mul_add(y, t, coefficient);
                }
                let density = exp::<S>(-0.5 * x * x);
                let half = (0.5 * (1.0 - y * t * density)).copysign(x);
                let share = 0.5 + half;
                // 1 / sqrt(2 pi)
                (S::mul_add(x * 0.398_942_3, density, share), x * share)
            }
            Self::GeluTanh => {
                let square = 0.044_715 * x * x;
                // sqrt(2 / pi)
                let t = tanh::<S>(0.797_884_6 * S::mul_add(square, x, x));
                let slope = 0.797_884_6 * S::mul_add(square, 3.0, 1.0);
                (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope, 0.5 * x * (1.0 + t))
            }
            Self::Silu => {
                let share = 1.0 / (1.0 + exp::<S>(-x));
                (share * S::mul_add(x, 1.0 - share, 1.0), x * share)
            }
            Self::Tanh => {
                let t = tanh::<S>(x);
                (1.0 - t * t, t)
            }
            Self::ClippedGelu => {
                let (slope, value) = Self::Gelu.both::<S>(x);
                (if value.abs() < 10.0 { slope } else { 0.0 }, value.clamp(-10.0, 10.0))
            }
            Self::QuickGelu => {
                let share = 1.0 / (1.0 + exp::<S>(-1.702 * x));
                (share * S::mul_add(1.702 * x, 1.0 - share, 1.0), x * share)
            }
            Self::Mish => {
                let (share, slope) = mish_share::<S>(x);
                (S::mul_add(x, slope, share), x * share)
            }
            Self::Sigmoid => {
                let share = 1.0 / (1.0 + exp::<S>(-x));
                (share * (1.0 - share), share)
            }
            Self::LeakyRelu => (if x > 0.0 { 1.0 } else { 0.01 }, x.max(0.01 * x)),
            Self::Relu6 => (if x > 0.0 && x < 6.0 { 1.0 } else { 0.0 }, x.clamp(0.0, 6.0)),
            Self::HardSwish => {
                let slope = if x >= 3.0 { 1.0 } else { S::mul_add(x, 1.0 / 3.0, 0.5) };
                (if x > -3.0 { slope } else { 0.0 }, x * (x + 3.0).clamp(0.0, 6.0) / 6.0)
            }
            Self::Laplace => {
                let distance = (x - LAPLACE_MEAN) * LAPLACE_SCALE;
                // The derivative of erf is 2 / sqrt(pi) e^(-x^2).
                let slope = 0.564_189_6 * LAPLACE_SCALE * exp::<S>(-distance * distance);
                (slope, 0.5 * (1.0 + erf::<S>(distance)))
            }
            Self::Linear => (1.0, x),
        }
    }

    /// Applies the function to `inputs`, writes the result to `out`, and replaces `inputs` by the derivative.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn differentiate(self, isa: Isa, inputs: &mut [f32], out: &mut [f32]) {
        #[inline(always)]
        fn each<S: Simd>(activation: Activation, inputs: &mut [f32], out: &mut [f32]) {
            for (x, y) in inputs.iter_mut().zip(out) {
                (*x, *y) = activation.both::<S>(*x);
            }
        }
        #[inline(always)]
        fn body<S: Simd>(activation: Activation, inputs: &mut [f32], out: &mut [f32]) {
            // The function is constant in each loop, so that a loop has one formula.
            match activation {
                Activation::Relu => each::<S>(Activation::Relu, inputs, out),
                Activation::SquaredRelu => each::<S>(Activation::SquaredRelu, inputs, out),
                Activation::Gelu => each::<S>(Activation::Gelu, inputs, out),
                Activation::GeluTanh => each::<S>(Activation::GeluTanh, inputs, out),
                Activation::Silu => each::<S>(Activation::Silu, inputs, out),
                Activation::Tanh => each::<S>(Activation::Tanh, inputs, out),
                Activation::ClippedGelu => each::<S>(Activation::ClippedGelu, inputs, out),
                Activation::QuickGelu => each::<S>(Activation::QuickGelu, inputs, out),
                Activation::Mish => each::<S>(Activation::Mish, inputs, out),
                Activation::Sigmoid => each::<S>(Activation::Sigmoid, inputs, out),
                Activation::LeakyRelu => each::<S>(Activation::LeakyRelu, inputs, out),
                Activation::Relu6 => each::<S>(Activation::Relu6, inputs, out),
                Activation::HardSwish => each::<S>(Activation::HardSwish, inputs, out),
                Activation::Laplace => each::<S>(Activation::Laplace, inputs, out),
                Activation::Linear => each::<S>(Activation::Linear, inputs, out),
            }
        }
        assert_eq!(inputs.len(), out.len());
        let activation = self;
        dispatch!(isa, body(activation: Activation, inputs: &mut [f32], out: &mut [f32]));
    }

    /// Adds `bias` to every row of `inputs` and writes the function of the sums to `out`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn biased(self, isa: Isa, bias: &[f32], inputs: &mut [f32], out: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(activation: Activation, bias: &[f32], inputs: &mut [f32], out: &mut [f32]) {
            let rows = inputs.chunks_exact_mut(bias.len()).zip(out.chunks_exact_mut(bias.len()));
            for (inputs, out) in rows {
                for ((x, y), bias) in inputs.iter_mut().zip(out.iter_mut()).zip(bias) {
                    *x += bias;
                    *y = *x;
                }
                activation.apply::<S>(out);
            }
        }
        assert_eq!(inputs.len(), out.len());
        let activation = self;
        dispatch!(isa, body(activation: Activation, bias: &[f32], inputs: &mut [f32], out: &mut [f32]));
    }
}

/// The end of each part of a post-norm layer: `normalise(dropout(xs + bias) + residual)`, with scale and
/// shift (Ba et al. 2016). The backward pass needs only the normalised values before scale and shift.
#[derive(Clone, Copy, Debug)]
pub struct ResidualNorm<'a> {
    /// Added to every row first, if present.
    pub bias: Option<&'a [f32]>,
    /// Applied to the sum with the bias, not to the residual.
    pub dropout: Dropout,
    /// The scale of normalised values.
    pub scale: &'a [f32],
    /// The shift.
    pub shift: &'a [f32],
    /// The constant added to the variance.
    pub eps: f32,
}

impl ResidualNorm<'_> {
    /// Replaces `xs` by the normalised values. Writes the values with scale and shift to `out`, and the
    /// inverse standard deviation of every row to `deviations`. With `adds`, `out` contains the residual. The
    /// rows start at row `first` of the batch, which determines the dropout mask.
    ///
    /// # Panics
    /// If the lengths do not match.
    pub fn forward(
        &self,
        isa: Isa,
        first: usize,
        xs: &mut [f32],
        adds: bool,
        out: &mut [f32],
        deviations: &mut [f32],
    ) {
        #[inline(always)]
        fn body<S: Simd>(
            norm: &ResidualNorm<'_>,
            first: usize,
            xs: &mut [f32],
            adds: bool,
            out: &mut [f32],
            deviations: &mut [f32],
        ) {
            let width = norm.scale.len();
            let rows = xs.chunks_exact_mut(width).zip(out.chunks_exact_mut(width)).zip(deviations);
            for (at, ((xs, out), deviation)) in rows.enumerate() {
                if let Some(bias) = norm.bias {
                    xs.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
                }
                norm.dropout.body((first + at) * width, xs);
                if adds {
                    xs.iter_mut().zip(out.iter()).for_each(|(x, other)| *x += other);
                }
                let mean = sum(xs, |x| x) / width as f32;
                let variance = sum(xs, |x| (x - mean) * (x - mean)) / width as f32;
                let inverse = 1.0 / (variance + norm.eps).sqrt();
                *deviation = inverse;
                for (((x, y), scale), shift) in xs.iter_mut().zip(out).zip(norm.scale).zip(norm.shift) {
                    *x = (*x - mean) * inverse;
                    *y = S::mul_add(*x, *scale, *shift);
                }
            }
        }
        let width = self.scale.len();
        assert!(xs.len() == out.len() && xs.len() == deviations.len() * width && self.shift.len() == width);
        assert!(self.bias.is_none_or(|bias| bias.len() == width));
        let norm = self;
        dispatch!(isa, body(
            norm: &ResidualNorm<'_>,
            first: usize,
            xs: &mut [f32],
            adds: bool,
            out: &mut [f32],
            deviations: &mut [f32],
        ));
    }

    /// Recomputes the result of `forward` into `out` from the normalised values.
    ///
    /// # Panics
    /// If the lengths do not match.
    pub fn again(&self, isa: Isa, normed: &[f32], out: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(scale: &[f32], shift: &[f32], normed: &[f32], out: &mut [f32]) {
            for (normed, out) in normed.chunks_exact(scale.len()).zip(out.chunks_exact_mut(scale.len())) {
                for (((x, y), scale), shift) in normed.iter().zip(out).zip(scale).zip(shift) {
                    *y = S::mul_add(*x, *scale, *shift);
                }
            }
        }
        assert_eq!(normed.len(), out.len());
        let (scale, shift) = (self.scale, self.shift);
        dispatch!(isa, body(scale: &[f32], shift: &[f32], normed: &[f32], out: &mut [f32]));
    }

    /// Replaces the gradient of the result, in `gradient`, by that of the normalised sum, which is also the
    /// residual's. Writes that of `xs` to `to_xs`. Adds the gradients of scale, shift and bias to the three
    /// parts of `sums`, each as long as a row.
    ///
    /// With n values a row, normalised values h, standard deviation 1 / r and g = gradient * scale, the sum's
    /// gradient is r (g - mean(g) - h mean(g h)).
    ///
    /// # Panics
    /// If the lengths do not match.
    #[expect(clippy::too_many_arguments, reason = "each is a different row of the one formula")]
    pub fn backward(
        &self,
        isa: Isa,
        first: usize,
        normed: &[f32],
        deviations: &[f32],
        gradient: &mut [f32],
        to_xs: &mut [f32],
        sums: &mut [f32],
    ) {
        #[inline(always)]
        fn body<S: Simd>(
            norm: &ResidualNorm<'_>,
            first: usize,
            normed: &[f32],
            deviations: &[f32],
            gradient: &mut [f32],
            to_xs: &mut [f32],
            sums: &mut [f32],
        ) {
            let width = norm.scale.len();
            let (to_scale, rest) = sums.split_at_mut(width);
            let (to_shift, to_bias) = rest.split_at_mut(width);
            let rows = gradient.chunks_exact_mut(width).zip(to_xs.chunks_exact_mut(width));
            for (at, ((gradient, to_xs), inverse)) in rows.zip(deviations).enumerate() {
                let normed = &normed[at * width..][..width];
                for (((g, h), a), b) in
                    gradient.iter_mut().zip(normed).zip(to_scale.iter_mut()).zip(to_shift.iter_mut())
                {
                    *a = S::mul_add(*g, *h, *a);
                    *b += *g;
                }
                gradient.iter_mut().zip(norm.scale).for_each(|(g, scale)| *g *= scale);
                let mean = sum(gradient, |g| g) / width as f32;
                let pull = sum_pairs(gradient, normed, |g, h| g * h) / width as f32;
                for ((g, h), x) in gradient.iter_mut().zip(normed).zip(to_xs.iter_mut()) {
                    *g = inverse * (*g - mean - h * pull);
                    *x = *g;
                }
                norm.dropout.body((first + at) * width, to_xs);
                to_bias.iter_mut().zip(to_xs.iter()).for_each(|(sum, x)| *sum += x);
            }
        }
        let width = self.scale.len();
        assert!(gradient.len() == normed.len() && gradient.len() == to_xs.len());
        assert!(gradient.len() == deviations.len() * width && sums.len() == 3 * width);
        let norm = self;
        dispatch!(isa, body(
            norm: &ResidualNorm<'_>,
            first: usize,
            normed: &[f32],
            deviations: &[f32],
            gradient: &mut [f32],
            to_xs: &mut [f32],
            sums: &mut [f32],
        ));
    }
}

/// The softmax of one head's scores, row by row, with dropout of the weights. The weights are not stored: the
/// backward pass recomputes them from the scores and from the log-sum-exp of each row.
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxRows {
    /// The number of scores in a row.
    pub width: usize,
    /// The factor of scores.
    pub scale: f32,
    /// Of the weights.
    pub dropout: Dropout,
    /// The index of the first weight, for dropout.
    pub first: usize,
}

impl SoftmaxRows {
    /// Replaces `scores` by dropped weights, and writes the log-sum-exp of each row to `sums`.
    ///
    /// # Panics
    /// If the lengths do not match.
    pub fn forward(&self, isa: Isa, scores: &mut [f32], sums: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(rows: &SoftmaxRows, scores: &mut [f32], sums: &mut [f32]) {
            for (row, out) in scores.chunks_exact_mut(rows.width).zip(sums) {
                row.iter_mut().for_each(|score| *score *= rows.scale);
                let greatest = crate::math::max_body(row);
                row.iter_mut().for_each(|score| *score = exp::<S>(*score - greatest));
                let total = sum(row, |weight| weight);
                let inverse = 1.0 / total;
                row.iter_mut().for_each(|weight| *weight *= inverse);
                *out = greatest + total.ln();
            }
            rows.dropout.body(rows.first, scores);
        }
        assert_eq!(scores.len(), sums.len() * self.width);
        let rows = self;
        dispatch!(isa, body(rows: &SoftmaxRows, scores: &mut [f32], sums: &mut [f32]));
    }

    /// Replaces `scores` by the recomputed weights, and writes the dropped weights to `dropped`.
    ///
    /// # Panics
    /// If the lengths do not match.
    pub fn again(&self, isa: Isa, sums: &[f32], scores: &mut [f32], dropped: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(rows: &SoftmaxRows, sums: &[f32], scores: &mut [f32], dropped: &mut [f32]) {
            for (row, sum) in scores.chunks_exact_mut(rows.width).zip(sums) {
                row.iter_mut().for_each(|score| *score = exp::<S>(S::mul_add(*score, rows.scale, -*sum)));
            }
            dropped.copy_from_slice(scores);
            rows.dropout.body(rows.first, dropped);
        }
        assert!(scores.len() == sums.len() * self.width && scores.len() == dropped.len());
        let rows = self;
        dispatch!(isa, body(rows: &SoftmaxRows, sums: &[f32], scores: &mut [f32], dropped: &mut [f32]));
    }

    /// Turns the gradient of the dropped weights into that of the query-key products, before their scale.
    /// `pulls` has, for each row, the inner product of the head's result with its gradient.
    ///
    /// # Panics
    /// If the lengths do not match.
    pub fn backward(&self, isa: Isa, weights: &[f32], pulls: &[f32], gradient: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(rows: &SoftmaxRows, weights: &[f32], pulls: &[f32], gradient: &mut [f32]) {
            rows.dropout.body(rows.first, gradient);
            let each = gradient.chunks_exact_mut(rows.width).zip(weights.chunks_exact(rows.width));
            for ((gradient, weights), pull) in each.zip(pulls) {
                for (g, p) in gradient.iter_mut().zip(weights) {
                    *g = rows.scale * p * (*g - pull);
                }
            }
        }
        assert!(weights.len() == gradient.len() && gradient.len() == pulls.len() * self.width);
        let rows = self;
        dispatch!(isa, body(rows: &SoftmaxRows, weights: &[f32], pulls: &[f32], gradient: &mut [f32]));
    }
}

#[cfg(test)]
mod tests;
