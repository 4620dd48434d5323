//! Activation functions with their derivatives.

use std::sync::OnceLock;

use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use sporran_kernels::{Activation, Isa, multiply};

use super::{values, with_values};

/// Values that one thread works on at a time.
pub(super) const PORTION: usize = 1 << 14;

struct Activate {
    function: Activation,
    /// The derivatives, which the forward pass leaves for the backward pass.
    slopes: OnceLock<Vec<f32>>,
}

impl CustomOp1 for Activate {
    fn name(&self) -> &'static str {
        "activation"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let mut slopes = values(storage, layout)?.to_vec();
        let mut out = vec![0.0; slopes.len()];
        let isa = Isa::detected();
        let parts = slopes.par_chunks_mut(PORTION).zip(out.par_chunks_mut(PORTION));
        parts.for_each(|(slopes, out)| self.function.differentiate(isa, slopes, out));
        // The forward pass of an operation runs once.
        let _ = self.slopes.set(slopes);
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, result: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let Some(slopes) = self.slopes.get() else {
            candle_core::bail!("activation: the backward pass came before the forward pass");
        };
        let isa = Isa::detected();
        let mut out = with_values(&gradient.contiguous()?, |values| Ok(values.to_vec()))?;
        let parts = out.par_chunks_mut(PORTION).zip(slopes.par_chunks(PORTION));
        parts.for_each(|(out, slopes)| multiply(isa, out, slopes));
        Ok(Some(Tensor::from_vec(out, result.shape(), &Device::Cpu)?))
    }
}

/// The function of each value.
pub fn activation(xs: &Tensor, function: Activation) -> Result<Tensor> {
    xs.contiguous()?.apply_op1(Activate { function, slopes: OnceLock::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::tests::{assert_close, gradients, wave};

    #[test]
    fn values_and_gradients_equal_those_of_the_composition() {
        let inputs = [(wave(&[3, 4, 5], 0.9) * 3.0).unwrap()];
        let fused = gradients(&inputs, |x| activation(&x[0], Activation::Silu));
        let plain = gradients(&inputs, |x| x[0].silu());
        assert_close(&fused, &plain);
        let fused = gradients(&inputs, |x| activation(&x[0], Activation::GeluTanh));
        let plain = gradients(&inputs, |x| {
            // sqrt(2 / pi) (x + 0.044715 x^3)
            let inner = (((x[0].sqr()? * &x[0])? * 0.044_715)? + &x[0])?;
            (&x[0] * ((inner * (2.0 / std::f64::consts::PI).sqrt())?.tanh()? + 1.0)?)? * 0.5
        });
        assert_close(&fused, &plain);
    }
}
