//! `x W + b`, with the weight as GPT-2 stores it.

use candle_core::{CpuStorage, CustomOp3, Device, Layout, Result, Shape, Tensor};
use sporran_kernels::{Isa, add_columns};

use super::product::{View, add_weight_product, weight_product};
use super::{sums::weight_gradient, values, with_values};

struct Transposed;

impl CustomOp3 for Transposed {
    fn name(&self) -> &'static str {
        "linear-transposed"
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
        let ((rows, inputs), (_, outputs)) = (l1.shape().dims2()?, l2.shape().dims2()?);
        let (xs, weight, bias) = (values(s1, l1)?, values(s2, l2)?, values(s3, l3)?);
        let mut out = bias.repeat(rows);
        add_weight_product(
            (&mut out, View::rows(0, rows, outputs, outputs)),
            (xs, View::rows(0, rows, inputs, inputs)),
            (weight, View::rows(0, inputs, outputs, outputs)),
        );
        Ok((CpuStorage::F32(out), (rows, outputs).into()))
    }

    fn bwd(
        &self,
        xs: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let ((rows, inputs), (_, outputs)) = (xs.dims2()?, weight.dims2()?);
        let gradient = gradient.contiguous()?;
        let of_gradient = View::rows(0, rows, outputs, outputs);
        let of_weight = View::rows(0, inputs, outputs, outputs);
        let of_xs = View::rows(0, rows, inputs, inputs);
        let (mut to_xs, mut to_bias) = (vec![0.0; rows * inputs], vec![0.0; outputs]);
        let to_weight = with_values(&gradient, |g| {
            with_values(weight, |w| {
                weight_product((&mut to_xs, of_xs), (g, of_gradient), (w, of_weight.transposed()));
                Ok(())
            })?;
            add_columns(Isa::detected(), g, &mut to_bias);
            with_values(xs, |x| {
                weight_gradient(weight, |sum| {
                    add_weight_product((sum, of_weight), (x, of_xs.transposed()), (g, of_gradient));
                })
            })
        })?;
        Ok((
            Some(Tensor::from_vec(to_xs, xs.shape(), &Device::Cpu)?),
            to_weight,
            Some(Tensor::from_vec(to_bias, bias.shape(), &Device::Cpu)?),
        ))
    }
}

/// `xs` (n, in) times `weight` (in, out) plus `bias` (out): (n, out).
pub fn linear_transposed(xs: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let ((_, inputs), (expected, outputs)) = (xs.dims2()?, weight.dims2()?);
    if inputs != expected || bias.dims1()? != outputs {
        candle_core::bail!(
            "linear-transposed: inputs {:?}, weight {:?} and bias {:?} do not fit",
            xs.shape(),
            weight.shape(),
            bias.shape()
        );
    }
    xs.contiguous()?.apply_op3(&weight.contiguous()?, &bias.contiguous()?, Transposed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::tests::{assert_close, gradients, wave};

    #[test]
    fn values_and_gradients_equal_those_of_the_composition() {
        let inputs = [wave(&[5, 4], 0.7), wave(&[4, 3], 1.3), wave(&[3], 0.4)];
        let fused = gradients(&inputs, |x| linear_transposed(&x[0], &x[1], &x[2]));
        let plain = gradients(&inputs, |x| x[0].matmul(&x[1])?.broadcast_add(&x[2]));
        assert_close(&fused, &plain);
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        let [xs, weight] = [wave(&[2, 3], 1.0), wave(&[3, 4], 1.0)];
        assert!(linear_transposed(&xs, &weight, &wave(&[4], 1.0)).is_ok());
        assert!(linear_transposed(&xs, &weight, &wave(&[3], 1.0)).is_err());
        let message = linear_transposed(&weight, &weight, &wave(&[4], 1.0)).unwrap_err().to_string();
        assert!(message.contains("do not fit"), "{message}");
    }
}
