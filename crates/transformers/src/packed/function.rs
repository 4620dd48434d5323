//! What feed-forward parts do between their projections.

use sporran_kernels::{Activation, Machine, Rows};

/// What a feed-forward part does with its inner values.
#[derive(Debug, Clone, Copy)]
pub(super) enum Function {
    /// An activation, which the product applies.
    Plain(Activation),
    /// An activation of the gate with a factor, and a factor of the results.
    Scaled {
        activation: Activation,
        gate: f32,
        result: f32,
    },
    Learned(Slopes),
    /// `(u + 1) g / (1 + exp(-alpha g))`, where the gate `g` is at most `most` and `u` is between it and its negative.
    Bounded {
        alpha: f32,
        most: f32,
    },
    /// Gates above their mean and `least` of their deviations are activated, the others are 0.
    Sparse {
        activation: Activation,
        least: f32,
    },
}

impl<T: Into<Activation>> From<T> for Function {
    fn from(activation: T) -> Self {
        Self::Plain(activation.into())
    }
}

/// An activation with slopes of its own (Huang and Schlag 2024, "xIELU").
#[derive(Debug, Clone, Copy)]
pub(super) struct Slopes {
    above: f32,
    below: f32,
    zero: f32,
    most: f32,
}

impl Slopes {
    /// The activation of the stored values: the growth of the slope above 0 and below it, both as what `ln(1 + exp(x))` gives
    /// them, the slope at 0, and the greatest value below 0.
    pub(super) fn new([above, below, zero, most]: [f32; 4]) -> Self {
        let positive = |value: f32| value.exp().ln_1p();
        Self { above: positive(above), below: zero + positive(below), zero, most }
    }

    fn at(&self, x: f32) -> f32 {
        let curved = if x > 0.0 { self.above * x * x } else { (x.min(self.most).exp_m1() - x) * self.below };
        curved + self.zero * x
    }
}

impl Function {
    /// The activation that the inner product applies.
    pub(super) fn of_product(self) -> Option<Activation> {
        match self {
            Self::Plain(activation) => Some(activation),
            Self::Learned(_) | Self::Bounded { .. } | Self::Scaled { .. } | Self::Sparse { .. } => None,
        }
    }

    /// Applies the rest of the function to the rows of `inner`, which `gated` has further values for where there is a gate.
    pub(super) fn finish(self, machine: &Machine, inner: &mut Rows, gated: Option<&Rows>) {
        if matches!(self, Self::Plain(_)) {
            return;
        }
        let blocks: Vec<_> = (0..inner.count()).map(|row| row..row + 1).collect();
        let width = inner.width();
        inner.each_part(machine.pool, &blocks, width, &|row, _, mut part| {
            let values = part.row_mut(0);
            match (self, gated) {
                (Self::Learned(slopes), _) => values.iter_mut().for_each(|value| *value = slopes.at(*value)),
                (Self::Scaled { activation, gate, result }, Some(gated)) => {
                    values.iter_mut().for_each(|value| *value *= gate);
                    activation.forward(machine.isa, values);
                    for (value, up) in values.iter_mut().zip(gated.row(row)) {
                        *value *= up * result;
                    }
                }
                (Self::Bounded { alpha, most }, Some(gated)) => {
                    for (gate, up) in values.iter_mut().zip(gated.row(row)) {
                        let bounded = gate.min(most);
                        *gate = bounded / (1.0 + (-alpha * bounded).exp()) * (up.clamp(-most, most) + 1.0);
                    }
                }
                (Self::Sparse { activation, least }, Some(gated)) => {
                    let mean = |values: &[f32]| values.iter().sum::<f32>() / values.len() as f32;
                    let middle = mean(values);
                    let squares: Vec<f32> = values.iter().map(|value| (value - middle).powi(2)).collect();
                    let bound = middle + least * mean(&squares).sqrt();
                    values.iter_mut().for_each(|value| *value = (*value - bound).max(0.0));
                    activation.forward(machine.isa, values);
                    values.iter_mut().zip(gated.row(row)).for_each(|(gate, up)| *gate *= up);
                }
                _ => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Slopes;

    #[test]
    fn learned_slopes_are_those_of_the_definition() {
        // ln(1 + exp(x)) of these is 0.8 and 0.3.
        let stored = |value: f32| value.exp_m1().ln();
        let slopes = Slopes::new([stored(0.8), stored(0.3), 0.5, -1e-6]);
        for (x, expected) in
            [(2.0, 0.8 * 4.0 + 1.0), (-2.0, ((-2f32).exp() - 1.0 + 2.0) * 0.8 - 1.0), (0.0, -8e-7)]
        {
            assert!((slopes.at(x) - expected).abs() < 1e-6, "{x}: {}", slopes.at(x));
        }
    }
}
