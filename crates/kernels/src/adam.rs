//! The update of AdamW (Loshchilov and Hutter 2019) over plain slices.

use crate::{
    isa::{Isa, dispatch},
    simd::Simd,
};

/// One step of AdamW, the same for all values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamStep {
    /// Decay of the running mean of gradients.
    pub beta1: f32,
    /// Decay of the running mean of squared gradients.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// The learning rate.
    pub rate: f32,
    /// The factor of weight decay: 1 - learning rate * weight decay.
    pub keep: f32,
    /// The bias correction of the first moment.
    pub first_scale: f32,
    /// The bias correction of the second moment.
    pub second_scale: f32,
}

impl AdamStep {
    /// Updates `values` and their two moments by `gradient`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn update(
        &self,
        isa: Isa,
        values: &mut [f32],
        gradient: &[f32],
        first: &mut [f32],
        second: &mut [f32],
    ) {
        #[inline(always)]
        fn body<S: Simd>(
            step: &AdamStep,
            values: &mut [f32],
            gradient: &[f32],
            first: &mut [f32],
            second: &mut [f32],
        ) {
            let AdamStep { beta1, beta2, epsilon, rate, keep, first_scale, second_scale } = *step;
            for (((value, &g), m), v) in values.iter_mut().zip(gradient).zip(first).zip(second) {
                *m = beta1 * *m + (1.0 - beta1) * g;
                *v = beta2 * *v + (1.0 - beta2) * g * g;
                let update = *m * first_scale / ((*v * second_scale).sqrt() + epsilon);
                *value = *value * keep - rate * update;
            }
        }
        let count = values.len();
        assert!(count == gradient.len() && count == first.len() && count == second.len());
        let step = self;
        dispatch!(isa, body(
            step: &AdamStep,
            values: &mut [f32],
            gradient: &[f32],
            first: &mut [f32],
            second: &mut [f32],
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_makes_the_step_of_the_formula() {
        let step = AdamStep {
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            rate: 0.1,
            keep: 0.95,
            first_scale: 10.0,
            second_scale: 100.0,
        };
        for isa in Isa::available() {
            let (mut values, mut first, mut second) = (vec![1.0; 70], vec![0.0; 70], vec![0.0; 70]);
            let gradient: Vec<f32> = (0..70).map(|i| if i % 2 == 0 { 3.0 } else { -0.01 }).collect();
            step.update(isa, &mut values, &gradient, &mut first, &mut second);
            for (at, value) in values.iter().enumerate() {
                // After one step the corrected moments are g and g^2, so the update is the sign of g.
                let expected = 0.95 - if at % 2 == 0 { 0.1 } else { -0.1 };
                assert!((value - expected).abs() < 1e-5, "{isa:?} {value}");
            }
            assert!((first[0] - 0.3).abs() < 1e-6 && (second[0] - 0.09).abs() < 1e-6);
        }
    }
}
