//! Gated values.

use candle_core::{CpuStorage, CustomOp2, Device, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use sporran_kernels::{Activation, Isa, multiply};

use super::{activation::PORTION, values, with_values};

struct Gate(Activation);

impl CustomOp2 for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (gates, xs) = (values(s1, l1)?, values(s2, l2)?);
        let isa = Isa::detected();
        let mut out = vec![0.0; xs.len()];
        let parts = out.par_chunks_mut(PORTION).zip(gates.par_chunks(PORTION)).zip(xs.par_chunks(PORTION));
        parts.for_each_init(
            || vec![0.0; PORTION],
            |slopes, ((out, gates), xs)| {
                let slopes = &mut slopes[..gates.len()];
                slopes.copy_from_slice(gates);
                self.0.differentiate(isa, slopes, out);
                multiply(isa, out, xs);
            },
        );
        Ok((CpuStorage::F32(out), l1.shape().clone()))
    }

    fn bwd(
        &self,
        gates: &Tensor,
        xs: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let isa = Isa::detected();
        let gradient = gradient.contiguous()?;
        let mut to_gates = with_values(gates, |gates| Ok(gates.to_vec()))?;
        let mut to_xs = vec![0.0; to_gates.len()];
        with_values(xs, |xs| {
            with_values(&gradient, |gradient| {
                let parts = to_gates.par_chunks_mut(PORTION).zip(to_xs.par_chunks_mut(PORTION));
                let given = xs.par_chunks(PORTION).zip(gradient.par_chunks(PORTION));
                parts.zip(given).for_each(|((to_gates, to_xs), (xs, gradient))| {
                    self.0.differentiate(isa, to_gates, to_xs);
                    multiply(isa, to_xs, gradient);
                    multiply(isa, to_gates, gradient);
                    multiply(isa, to_gates, xs);
                });
                Ok(())
            })
        })?;
        let tensor = |values| Tensor::from_vec(values, xs.shape(), &Device::Cpu);
        Ok((Some(tensor(to_gates)?), Some(tensor(to_xs)?)))
    }
}

/// The function of `gates` times `xs`, of the same shape.
pub fn gate(gates: &Tensor, xs: &Tensor, function: Activation) -> Result<Tensor> {
    if gates.shape() != xs.shape() {
        candle_core::bail!("gate: gates {:?} and values {:?} do not fit", gates.shape(), xs.shape());
    }
    gates.contiguous()?.apply_op2(&xs.contiguous()?, Gate(function))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::tests::{assert_close, gradients, wave};

    #[test]
    fn values_and_gradients_equal_those_of_the_composition() {
        let inputs = [(wave(&[3, 4, 5], 0.9) * 3.0).unwrap(), wave(&[3, 4, 5], 0.4)];
        let fused = gradients(&inputs, |x| gate(&x[0], &x[1], Activation::Silu));
        let plain = gradients(&inputs, |x| x[0].silu()? * &x[1]);
        assert_close(&fused, &plain);
    }

    #[test]
    fn shapes_that_differ_are_an_error() {
        assert!(gate(&wave(&[2, 3], 1.0), &wave(&[2, 4], 1.0), Activation::Silu).is_err());
    }
}
