//! The update of Adagrad (Duchi et al. 2011) over plain slices.

use crate::{
    isa::{Isa, dispatch},
    simd::Simd,
};

/// One step of Adagrad, the same for all values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdagradStep {
    /// The learning rate.
    pub rate: f32,
    /// Added to the root of the sum of squares.
    pub epsilon: f32,
}

impl AdagradStep {
    /// Updates `values` and the sums of their squared gradients by `gradient`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn update(&self, isa: Isa, values: &mut [f32], gradient: &[f32], squares: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(step: &AdagradStep, values: &mut [f32], gradient: &[f32], squares: &mut [f32]) {
            let AdagradStep { rate, epsilon } = *step;
            for ((value, &g), square) in values.iter_mut().zip(gradient).zip(squares) {
                *square += g * g;
                *value -= rate * g / (square.sqrt() + epsilon);
            }
        }
        assert!(values.len() == gradient.len() && values.len() == squares.len());
        let step = self;
        dispatch!(isa, body(step: &AdagradStep, values: &mut [f32], gradient: &[f32], squares: &mut [f32]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_shrink_with_the_root_of_the_sum_of_squares() {
        let step = AdagradStep { rate: 0.1, epsilon: 1e-10 };
        for isa in Isa::available() {
            let (mut values, mut squares) = (vec![1.0; 40], vec![0.0; 40]);
            step.update(isa, &mut values, &[3.0; 40], &mut squares);
            step.update(isa, &mut values, &[-4.0; 40], &mut squares);
            // 1 - 0.1 * 3 / 3 + 0.1 * 4 / 5
            assert!(values.iter().all(|value| (value - 0.98).abs() < 1e-6), "{isa:?}");
            assert!(squares.iter().all(|square| *square == 25.0));
            // Without a gradient a value does not change.
            step.update(isa, &mut values[..1], &[0.0], &mut squares[..1]);
            assert_eq!(values[0], values[1]);
        }
    }
}
