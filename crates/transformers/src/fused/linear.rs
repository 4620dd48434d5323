//! `x W^T` and the rectifier.

use candle_core::{CpuStorage, CustomOp1, CustomOp2, Device, Layout, Result, Shape, Tensor};

use super::product::{View, add_weight_product, weight_product};
use super::{sums::weight_gradient, values, with_values};

struct Linear;

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let ((rows, inputs), (outputs, _)) = (l1.shape().dims2()?, l2.shape().dims2()?);
        let (xs, weight) = (values(s1, l1)?, values(s2, l2)?);
        let mut out = vec![0.0; rows * outputs];
        weight_product(
            (&mut out, View::rows(0, rows, outputs, outputs)),
            (xs, View::rows(0, rows, inputs, inputs)),
            (weight, View::rows(0, outputs, inputs, inputs).transposed()),
        );
        Ok((CpuStorage::F32(out), (rows, outputs).into()))
    }

    fn bwd(
        &self,
        xs: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let ((rows, inputs), (outputs, _)) = (xs.dims2()?, weight.dims2()?);
        let gradient = gradient.contiguous()?;
        let of_gradient = View::rows(0, rows, outputs, outputs);
        with_values(&gradient, |g| {
            let to_xs = xs.track_op().then(|| {
                let mut out = vec![0.0; rows * inputs];
                let view = View::rows(0, outputs, inputs, inputs);
                with_values(weight, |w| {
                    weight_product(
                        (&mut out, View::rows(0, rows, inputs, inputs)),
                        (g, of_gradient),
                        (w, view),
                    );
                    Ok(())
                })?;
                Tensor::from_vec(out, (rows, inputs), &Device::Cpu)
            });
            let to_weight = with_values(xs, |x| {
                let (of_weight, view) =
                    (View::rows(0, outputs, inputs, inputs), View::rows(0, rows, inputs, inputs));
                weight_gradient(weight, |sum| {
                    add_weight_product((sum, of_weight), (g, of_gradient.transposed()), (x, view));
                })
            })?;
            Ok((to_xs.transpose()?, to_weight))
        })
    }
}

/// `xs` (n, in) times the transpose of `weight` (out, in): (n, out).
pub fn linear(xs: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let ((_, inputs), (_, expected)) = (xs.dims2()?, weight.dims2()?);
    if inputs != expected {
        candle_core::bail!("linear: expected inputs of width {expected}, found {inputs}");
    }
    xs.contiguous()?.apply_op2(&weight.contiguous()?, Linear)
}

struct Relu;

impl CustomOp1 for Relu {
    fn name(&self) -> &'static str {
        "relu"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let out = values(storage, layout)?.iter().map(|x| x.max(0.0)).collect();
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, result: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let out: Vec<f32> = with_values(result, |ys| {
            with_values(&gradient, |gs| {
                Ok(ys.iter().zip(gs).map(|(&y, &g)| if y > 0.0 { g } else { 0.0 }).collect())
            })
        })?;
        Ok(Some(Tensor::from_vec(out, result.shape(), &Device::Cpu)?))
    }
}

/// The larger of `xs` and zero; the gradient at zero is zero.
pub fn relu(xs: &Tensor) -> Result<Tensor> {
    xs.contiguous()?.apply_op1(Relu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::tests::{assert_close, gradients, wave};

    #[test]
    fn linear_and_relu_have_the_values_and_gradients_of_their_compositions() {
        let inputs = [wave(&[5, 4], 0.7), wave(&[3, 4], 1.3)];
        let fused = gradients(&inputs, |x| relu(&linear(&x[0], &x[1])?));
        let plain = gradients(&inputs, |x| x[0].matmul(&x[1].t()?)?.relu());
        assert_close(&fused, &plain);
    }

    #[test]
    fn a_width_that_does_not_fit_is_an_error() {
        let message = linear(&wave(&[2, 3], 1.0), &wave(&[2, 4], 1.0)).unwrap_err().to_string();
        assert!(message.contains("width 4, found 3"), "{message}");
    }
}
