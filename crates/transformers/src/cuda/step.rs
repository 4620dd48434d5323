//! The step of an optimiser.

use candle_core::{
    Result, Tensor,
    cuda_backend::{
        WrapErr,
        cudarc::driver::{LaunchConfig, PushKernelArg},
    },
};
use sporran_kernels::AdamStep;

use super::{BLOCK, by_elements, launch, with_values};

/// Blocks that take the squares of a tensor.
const PARTS: usize = 64;

/// The sum of the squares of all values of tensors on one GPU, each of f32. Sums are taken in f64 and in a fixed order.
pub fn sum_of_squares(tensors: &[&Tensor]) -> Result<f64> {
    let Some(first) = tensors.first() else { return Ok(0.0) };
    let device = first.device().as_cuda_device()?;
    let sums = device.alloc_zeros::<f64>(tensors.len() * PARTS)?;
    let shape =
        LaunchConfig { grid_dim: (PARTS as u32, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 };
    for (at, tensor) in tensors.iter().enumerate() {
        let (part, count) = (sums.slice(at * PARTS..(at + 1) * PARTS), tensor.elem_count() as u64);
        with_values(&tensor.contiguous()?, |values| {
            launch!(device, "squares", shape, &values, &part, &count);
            Ok(())
        })?;
    }
    Ok(device.clone_dtoh(&sums)?.iter().sum())
}

/// One step of Adam, in place on contiguous `values` and both moments, all of f32 on one GPU and of as many values as `gradient`.
pub fn adam(step: &AdamStep, values: &Tensor, gradient: &Tensor, moments: &[Tensor; 2]) -> Result<()> {
    let device = values.device().as_cuda_device()?;
    let count = values.elem_count() as u64;
    let AdamStep { beta1, beta2, epsilon, rate, keep, first_scale, second_scale } = step;
    let [first, second] = moments;
    with_values(&gradient.contiguous()?, |gradient| {
        with_values(first, |first| {
            with_values(second, |second| {
                with_values(values, |values| {
                    launch!(
                        device,
                        "adam",
                        by_elements(),
                        &values,
                        &gradient,
                        &first,
                        &second,
                        &count,
                        beta1,
                        beta2,
                        epsilon,
                        rate,
                        keep,
                        first_scale,
                        second_scale
                    );
                    Ok(())
                })
            })
        })
    })
}
