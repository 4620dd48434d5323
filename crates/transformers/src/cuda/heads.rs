//! The operations of attention around its products.

use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, CustomOp2, Layout, Result, Shape, Tensor,
    backend::BackendStorage,
    cuda_backend::{WrapErr, cudarc::driver::PushKernelArg},
};

use super::{
    by_elements, by_numbers, by_rows, launch, only_on_a_gpu, operations::sum_of_rows, rows_and_width, values,
};

/// (b, t, heads * width) to (b, heads, t, width), with `bias` (heads * width) added where there is one.
pub(crate) fn split_heads(xs: &Tensor, bias: Option<&Tensor>, heads: usize) -> Result<Tensor> {
    let (xs, split) = (xs.contiguous()?, SplitHeads { heads });
    match bias {
        Some(bias) => xs.apply_op2(&bias.contiguous()?, split),
        None => xs.apply_op1(split),
    }
}

/// (b, heads, t, width) to (b, t, heads * width).
pub(crate) fn merge_heads(xs: &Tensor) -> Result<Tensor> {
    xs.contiguous()?.apply_op1(MergeHeads)
}

/// Softmax over the last dimension of `scores` (b, heads, t, s), each times `scale`, with `bias` added where there is one. That is
/// broadcastable to the scores but in its last dimension, and has no gradient.
pub(crate) fn attention_weights(scores: &Tensor, bias: Option<&Tensor>, scale: f64) -> Result<Tensor> {
    let (_, heads, length, _) = scores.dims4()?;
    let mut weights =
        Weights { scale: scale as f32, heads: heads as i32, length: length as i32, steps: [0; 3] };
    let scores = scores.contiguous()?;
    let Some(bias) = bias else { return scores.apply_op1(weights) };
    let mut step = 1;
    for at in (0..4).rev() {
        let size = bias.dim(at)?;
        match size {
            _ if size == scores.dim(at)? => {
                if let Some(own) = weights.steps.get_mut(at) {
                    *own = step;
                }
            }
            1 if at < 3 => {}
            _ => candle_core::bail!("a bias of {:?} for scores of {:?}", bias.shape(), scores.shape()),
        }
        step *= size as i32;
    }
    scores.apply_op2(&bias.contiguous()?, weights)
}

#[derive(Clone, Copy)]
struct SplitHeads {
    heads: usize,
}

impl SplitHeads {
    fn run(
        self,
        xs: &CudaStorage,
        layout: &Layout,
        bias: Option<(&CudaStorage, &Layout)>,
    ) -> Result<(CudaStorage, Shape)> {
        let (batch, length, all) = layout.shape().dims3()?;
        by_numbers!(xs, |T, ending| {
            let (device, count) = (&xs.device, (batch * length * all) as u32);
            let (long, heads, width) = (length as u32, self.heads as u32, (all / self.heads) as u32);
            // Where there is no bias the kernel reads none.
            let (of, of_layout) = bias.unwrap_or((xs, layout));
            let (bias, is_biased) = (values::<T>(of, of_layout)?, i32::from(bias.is_some()));
            let xs = values::<T>(xs, layout)?;
            // SAFETY: the kernel writes every value.
            let ys = unsafe { device.alloc::<T>(count as usize) }?;
            let name = format!("split_heads_{ending}");
            launch!(device, &name, by_elements(), &xs, &bias, &ys, &count, &long, &heads, &width, &is_biased);
            let shape = (batch, self.heads, length, all / self.heads).into();
            Ok((CudaStorage::wrap_cuda_slice(ys, device.clone()), shape))
        })
    }
}

impl CustomOp1 for SplitHeads {
    fn name(&self) -> &'static str {
        "split-heads"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        only_on_a_gpu("split-heads")
    }

    fn cuda_fwd(&self, xs: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        self.run(xs, layout, None)
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, to_result: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(to_result.contiguous()?.apply_op1_no_bwd(&MergeHeads)?))
    }
}

impl CustomOp2 for SplitHeads {
    fn name(&self) -> &'static str {
        "split-heads"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        only_on_a_gpu("split-heads")
    }

    fn cuda_fwd(
        &self,
        xs: &CudaStorage,
        layout: &Layout,
        bias: &CudaStorage,
        of_bias: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.run(xs, layout, Some((bias, of_bias)))
    }

    fn bwd(
        &self,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        to_result: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let to_xs = to_result.contiguous()?.apply_op1_no_bwd(&MergeHeads)?;
        let to_bias = sum_of_rows(&to_xs)?;
        Ok((Some(to_xs), Some(to_bias)))
    }
}

struct MergeHeads;

impl CustomOp1 for MergeHeads {
    fn name(&self) -> &'static str {
        "merge-heads"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        only_on_a_gpu(self.name())
    }

    fn cuda_fwd(&self, xs: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let (batch, heads, length, width) = layout.shape().dims4()?;
        by_numbers!(xs, |T, ending| {
            let (device, count) = (&xs.device, layout.shape().elem_count() as u32);
            let (long, many, wide) = (length as u32, heads as u32, width as u32);
            let xs = values::<T>(xs, layout)?;
            // SAFETY: the kernel writes every value.
            let ys = unsafe { device.alloc::<T>(count as usize) }?;
            let name = format!("merge_heads_{ending}");
            launch!(device, &name, by_elements(), &xs, &ys, &count, &long, &many, &wide);
            let shape = (batch, length, heads * width).into();
            Ok((CudaStorage::wrap_cuda_slice(ys, device.clone()), shape))
        })
    }

    fn bwd(&self, input: &Tensor, _: &Tensor, to_result: &Tensor) -> Result<Option<Tensor>> {
        let split = SplitHeads { heads: input.dim(1)? };
        Ok(Some(to_result.contiguous()?.apply_op1_no_bwd(&split)?))
    }
}

/// Softmax of scaled scores with a bias.
#[derive(Clone, Copy)]
struct Weights {
    scale: f32,
    heads: i32,
    length: i32,
    /// From one batch, head and row of the bias to the next.
    steps: [i32; 3],
}

impl Weights {
    fn run(
        self,
        xs: &CudaStorage,
        layout: &Layout,
        bias: Option<(&CudaStorage, &Layout)>,
    ) -> Result<(CudaStorage, Shape)> {
        let (rows, width) = rows_and_width(layout)?;
        by_numbers!(xs, |T, ending| {
            let (device, count, wide) = (&xs.device, rows as i64, width as i32);
            // Where there is no bias the kernel reads none.
            let (of, of_layout) = bias.unwrap_or((xs, layout));
            let (bias, is_biased) = (values::<T>(of, of_layout)?, i32::from(bias.is_some()));
            let xs = values::<T>(xs, layout)?;
            // SAFETY: the kernel writes every value.
            let ys = unsafe { device.alloc::<T>(rows * width) }?;
            let Self { scale, heads, length, steps: [by_batch, by_head, by_row] } = &self;
            launch!(
                device,
                &format!("softmax_{ending}"),
                by_rows(rows),
                &xs,
                &bias,
                &ys,
                &count,
                &wide,
                scale,
                heads,
                length,
                by_batch,
                by_head,
                by_row,
                &is_biased
            );
            Ok((CudaStorage::wrap_cuda_slice(ys, device.clone()), layout.shape().clone()))
        })
    }

    fn backward(self, weights: &Tensor, to_weights: &Tensor) -> Result<Tensor> {
        weights.apply_op2_no_bwd(&to_weights.contiguous()?, &WeightsBackward { scale: self.scale })
    }
}

impl CustomOp1 for Weights {
    fn name(&self) -> &'static str {
        "attention-weights"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        only_on_a_gpu("attention-weights")
    }

    fn cuda_fwd(&self, xs: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        self.run(xs, layout, None)
    }

    fn bwd(&self, _: &Tensor, result: &Tensor, to_result: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(self.backward(result, to_result)?))
    }
}

impl CustomOp2 for Weights {
    fn name(&self) -> &'static str {
        "attention-weights"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        only_on_a_gpu("attention-weights")
    }

    fn cuda_fwd(
        &self,
        xs: &CudaStorage,
        layout: &Layout,
        bias: &CudaStorage,
        of_bias: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.run(xs, layout, Some((bias, of_bias)))
    }

    fn bwd(
        &self,
        _: &Tensor,
        _: &Tensor,
        result: &Tensor,
        to_result: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        Ok((Some(self.backward(result, to_result)?), None))
    }
}

/// Of the weights and the gradient of them: the gradient of the scores.
struct WeightsBackward {
    scale: f32,
}

impl CustomOp2 for WeightsBackward {
    fn name(&self) -> &'static str {
        "attention-weights-backward"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        only_on_a_gpu(self.name())
    }

    fn cuda_fwd(
        &self,
        weights: &CudaStorage,
        layout: &Layout,
        to_weights: &CudaStorage,
        of_weights: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (device, (rows, width)) = (&weights.device, rows_and_width(layout)?);
        let (weights, to_weights) = (values::<f32>(weights, layout)?, values::<f32>(to_weights, of_weights)?);
        // SAFETY: the kernel writes every value.
        let to_scores = unsafe { device.alloc::<f32>(rows * width) }?;
        let (count, width) = (rows as i64, width as i32);
        launch!(
            device,
            "softmax_backward",
            by_rows(rows),
            &weights,
            &to_weights,
            &to_scores,
            &count,
            &width,
            &self.scale
        );
        Ok((CudaStorage::wrap_cuda_slice(to_scores, device.clone()), layout.shape().clone()))
    }
}
