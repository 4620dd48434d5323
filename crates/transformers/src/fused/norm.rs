//! Root mean square normalisation.

use candle_core::{CpuStorage, CustomOp2, D, Device, Layout, Result, Shape, Tensor};

use rayon::prelude::*;

use super::{values, with_values};

/// Rows that one thread works on at a time.
const PORTION: usize = 64;

struct RmsNorm {
    eps: f32,
}

/// 1 / sqrt(mean of squares + eps).
fn inverse_rms(row: &[f32], eps: f32) -> f32 {
    (dot(row, row) / row.len() as f32 + eps).sqrt().recip()
}

/// A sum of products over eight running sums, which the compiler can keep in vector registers.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a8.remainder().iter().zip(b8.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a8.zip(b8) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    sums.iter().sum::<f32>() + rest
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (xs, weight) = (values(s1, l1)?, values(s2, l2)?);
        let width = weight.len();
        let mut out = vec![0.0; xs.len()];
        let rows = xs.par_chunks_exact(width).zip(out.par_chunks_exact_mut(width));
        rows.with_min_len(PORTION).for_each(|(row, out)| {
            let scale = inverse_rms(row, self.eps);
            out.iter_mut().zip(row.iter().zip(weight)).for_each(|(y, (x, w))| *y = x * scale * w);
        });
        Ok((CpuStorage::F32(out), l1.shape().clone()))
    }

    fn bwd(
        &self,
        xs: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let width = weight.elem_count();
        let gradient = gradient.contiguous()?;
        let (to_xs, to_weight) = with_values(xs, |x| {
            with_values(weight, |w| with_values(&gradient, |g| Ok(backward(x, w, g, self.eps))))
        })?;
        Ok((
            Some(Tensor::from_vec(to_xs, xs.shape(), &Device::Cpu)?),
            Some(Tensor::from_vec(to_weight, width, &Device::Cpu)?),
        ))
    }
}

/// With r = 1 / rms(x) and n values: dx = r (w g) - x r^3 / n sum(w g x), and dw = sum over rows of g x r.
fn backward(xs: &[f32], weight: &[f32], gradient: &[f32], eps: f32) -> (Vec<f32>, Vec<f32>) {
    let width = weight.len();
    let part = width * PORTION;
    let mut to_xs = vec![0.0; xs.len()];
    let parts = to_xs.par_chunks_mut(part).zip(xs.par_chunks(part)).zip(gradient.par_chunks(part));
    let sums: Vec<Vec<f32>> = parts
        .map(|((to_xs, xs), gradient)| {
            let mut sums = vec![0.0; width];
            let rows = xs.chunks_exact(width).zip(gradient.chunks_exact(width));
            for (out, (x, g)) in to_xs.chunks_exact_mut(width).zip(rows) {
                let r = inverse_rms(x, eps);
                for (s, (w, g)) in out.iter_mut().zip(weight.iter().zip(g)) {
                    *s = w * g;
                }
                let pull = dot(out, x) * r * r * r / width as f32;
                out.iter_mut().zip(x).for_each(|(s, x)| *s = r * *s - pull * x);
                for (sum, (g, x)) in sums.iter_mut().zip(g.iter().zip(x)) {
                    *sum += g * x * r;
                }
            }
            sums
        })
        .collect();
    // The sums of parts are added in their order, so that threads cannot change the result.
    let mut to_weight = vec![0.0; width];
    for part in sums {
        to_weight.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    (to_xs, to_weight)
}

/// `xs` (.., n) over its root mean square, times `weight` (n).
pub fn rms_norm(xs: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    if xs.dim(D::Minus1)? != weight.dims1()? {
        candle_core::bail!(
            "rms-norm: expected rows of {} values, found {:?}",
            weight.elem_count(),
            xs.shape()
        );
    }
    xs.contiguous()?.apply_op2(&weight.contiguous()?, RmsNorm { eps })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::tests::{assert_close, gradients, wave};

    #[test]
    fn values_and_gradients_equal_those_of_the_composition() {
        let inputs = [wave(&[2, 3, 11], 0.9), wave(&[11], 0.4)];
        let fused = gradients(&inputs, |x| rms_norm(&x[0], &x[1], 1e-3));
        let plain = gradients(&inputs, |x| candle_nn::ops::rms_norm_slow(&x[0], &x[1], 1e-3));
        assert_close(&fused, &plain);
    }
}
