//! Sums of gradients that the backward pass adds to in place.

use std::{cell::RefCell, collections::HashMap};

use candle_core::{Result, Tensor, TensorId, backprop::GradStore};

/// The sums of gradients of weights, each by the identity of its weight.
pub type WeightSums = HashMap<TensorId, Vec<f32>>;

thread_local! {
    static SUMS: RefCell<WeightSums> = RefCell::default();
}

/// The gradients of a scalar `loss`. Products add those of the weights in `sums` to these sums; the store has all others.
///
/// candle's own pass writes each gradient to new memory, adds it to zeros and stores it until its end. For weights,
/// which are most of a model, that costs memory and time.
///
/// # Errors
/// A tensor error; the sums are then incomplete.
pub fn backward(loss: &Tensor, sums: &mut WeightSums) -> Result<GradStore> {
    /// Gives the sums back when dropped.
    struct Lent<'a>(&'a mut WeightSums);
    impl Drop for Lent<'_> {
        fn drop(&mut self) {
            *self.0 = SUMS.take();
        }
    }
    SUMS.set(std::mem::take(sums));
    let _lent = Lent(sums);
    loss.backward()
}

/// The gradient of `weight` by `add`, which adds it to a sum: `None` where the weight needs none or has its sum elsewhere.
pub(super) fn weight_gradient(weight: &Tensor, add: impl FnOnce(&mut [f32])) -> Result<Option<Tensor>> {
    if !weight.track_op() {
        return Ok(None);
    }
    SUMS.with_borrow_mut(|sums| {
        if let Some(sum) = sums.get_mut(&weight.id()) {
            add(sum);
            return Ok(None);
        }
        let mut sum = vec![0.0; weight.elem_count()];
        add(&mut sum);
        Tensor::from_vec(sum, weight.shape(), weight.device()).map(Some)
    })
}

#[cfg(test)]
mod tests {
    use candle_core::Var;

    use super::*;
    use crate::fused::{linear, linear_transposed, tests::wave};

    #[test]
    fn products_add_to_the_sums_of_their_weights_alone() {
        let [xs, first, second, bias] =
            [wave(&[5, 4], 0.7), wave(&[4, 4], 1.3), wave(&[4, 3], 0.9), wave(&[3], 0.4)]
                .map(|tensor| Var::from_tensor(&tensor).unwrap());
        let loss = || {
            let ys = linear(&linear(&xs, &first).unwrap(), &first).unwrap();
            linear_transposed(&ys, &second, &bias).unwrap().sqr().unwrap().sum_all().unwrap()
        };
        let plain = loss().backward().unwrap();
        let expected = |var: &Var| plain.get(var).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let mut sums = WeightSums::from([(first.id(), vec![1.0; 16]), (second.id(), vec![0.0; 12])]);
        let store = backward(&loss(), &mut sums).unwrap();
        assert!(store.get(&first).is_none() && store.get(&second).is_none());
        for other in [&xs, &bias] {
            let found = store.get(other).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!(found, expected(other));
        }
        for (var, start) in [(&first, 1.0), (&second, 0.0)] {
            for (found, expected) in sums[&var.id()].iter().zip(expected(var)) {
                assert!(
                    (found - start - expected).abs() < 1e-4 * expected.abs().max(1.0),
                    "{found} {expected}"
                );
            }
        }
        // Nothing is left behind for the next pass.
        assert_eq!(expected(&first), {
            let store = loss().backward().unwrap();
            store.get(&first).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
        });
    }
}
