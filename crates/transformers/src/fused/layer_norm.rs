//! Layer normalisation.

use std::sync::OnceLock;

use candle_core::{CpuStorage, CustomOp3, D, Device, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use sporran_kernels::{Dropout, Isa, ResidualNorm};

use super::{values, with_values};

/// Rows that one thread works on at a time. Sums over rows are taken within such a portion first, so that they do not
/// depend on the number of threads.
const PORTION: usize = 128;

struct LayerNorm {
    eps: f32,
    /// The normalised values before scale and shift, and the inverse standard deviation of each row, which the forward
    /// pass leaves for the backward pass.
    kept: OnceLock<(Vec<f32>, Vec<f32>)>,
}

impl LayerNorm {
    fn norm<'a>(&self, scale: &'a [f32], shift: &'a [f32]) -> ResidualNorm<'a> {
        ResidualNorm { bias: None, dropout: Dropout::new(0.0, 0), scale, shift, eps: self.eps }
    }
}

impl CustomOp3 for LayerNorm {
    fn name(&self) -> &'static str {
        "layer-norm"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (scale, shift) = (values(s2, l2)?, values(s3, l3)?);
        let mut normed = values(s1, l1)?.to_vec();
        let size = PORTION * scale.len();
        let (mut out, mut deviations) = (vec![0.0; normed.len()], vec![0.0; normed.len() / scale.len()]);
        let (norm, isa) = (self.norm(scale, shift), Isa::detected());
        normed
            .par_chunks_mut(size)
            .zip(out.par_chunks_mut(size))
            .zip(deviations.par_chunks_mut(PORTION))
            .for_each(|((normed, out), deviations)| norm.forward(isa, 0, normed, false, out, deviations));
        // The forward pass of an operation runs once.
        let _ = self.kept.set((normed, deviations));
        Ok((CpuStorage::F32(out), l1.shape().clone()))
    }

    fn bwd(
        &self,
        xs: &Tensor,
        scale: &Tensor,
        shift: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let Some((normed, deviations)) = self.kept.get() else {
            candle_core::bail!("layer-norm: the backward pass came before the forward pass");
        };
        let width = scale.elem_count();
        let mut gradient = with_values(&gradient.contiguous()?, |values| Ok(values.to_vec()))?;
        let mut to_xs = vec![0.0; gradient.len()];
        let mut sums = vec![0.0; deviations.len().div_ceil(PORTION) * 3 * width];
        with_values(scale, |scale| {
            let (norm, isa, size) = (self.norm(scale, scale), Isa::detected(), PORTION * width);
            gradient
                .par_chunks_mut(size)
                .zip(to_xs.par_chunks_mut(size))
                .zip(normed.par_chunks(size))
                .zip(deviations.par_chunks(PORTION))
                .zip(sums.par_chunks_mut(3 * width))
                .for_each(|((((gradient, to_xs), normed), deviations), sums)| {
                    norm.backward(isa, 0, normed, deviations, gradient, to_xs, sums);
                });
            Ok(())
        })?;
        let total = |part: usize| -> Vec<f32> {
            let mut total = vec![0.0; width];
            for sums in sums.chunks_exact(3 * width) {
                total.iter_mut().zip(&sums[part * width..]).for_each(|(total, sum)| *total += sum);
            }
            total
        };
        Ok((
            Some(Tensor::from_vec(to_xs, xs.shape(), &Device::Cpu)?),
            Some(Tensor::from_vec(total(0), scale.shape(), &Device::Cpu)?),
            Some(Tensor::from_vec(total(1), shift.shape(), &Device::Cpu)?),
        ))
    }
}

/// `xs` (.., n) with mean 0 and variance 1 in each row, times `scale` (n), plus `shift` (n).
pub fn layer_norm(xs: &Tensor, scale: &Tensor, shift: &Tensor, eps: f32) -> Result<Tensor> {
    let width = scale.dims1()?;
    if xs.dim(D::Minus1)? != width || shift.dims1()? != width {
        candle_core::bail!("layer-norm: expected rows of {width} values, found {:?}", xs.shape());
    }
    let operation = LayerNorm { eps, kept: OnceLock::new() };
    xs.contiguous()?.apply_op3(&scale.contiguous()?, &shift.contiguous()?, operation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::tests::{assert_close, gradients, wave};

    #[test]
    fn values_and_gradients_equal_those_of_the_composition() {
        // More rows than a portion has.
        let inputs = [wave(&[2, 67, 11], 0.9), wave(&[11], 0.4), wave(&[11], 0.8)];
        let fused = gradients(&inputs, |x| layer_norm(&x[0], &x[1], &x[2], 1e-3));
        let plain = gradients(&inputs, |x| candle_nn::ops::layer_norm_slow(&x[0], &x[1], &x[2], 1e-3));
        assert_close(&fused[..2], &plain[..2]);
        // Sums over 134 rows differ in more digits.
        for (a, b) in fused[2..].iter().flatten().zip(plain[2..].iter().flatten()) {
            assert!((a - b).abs() < 1e-4 * (1.0 + b.abs()), "{a} {b}");
        }
        assert!(layer_norm(&inputs[0], &inputs[1], &wave(&[10], 1.0), 1e-3).is_err());
    }
}
