//! Operations of a forward pass, with their gradients.

use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, CustomOp2, CustomOp3, D, Layout, Result, Shape, Tensor,
    backend::BackendStorage,
    cuda_backend::{WrapErr, cudarc::driver::PushKernelArg},
};

use super::{by_elements, by_numbers, by_rows, launch, only_on_a_gpu, rows_and_width, values};

/// Inverted dropout (Srivastava et al. 2014). Whether an element is kept depends on `seed` and its place alone, so the way back
/// needs no mask.
pub(crate) fn dropout(xs: &Tensor, rate: f64, seed: u64) -> Result<Tensor> {
    // 24 bits of a hash are compared.
    let steps = f64::from(1u32 << 24);
    let threshold = (rate * steps).round().clamp(0.0, steps - 1.0);
    let kept = (steps / (steps - threshold)) as f32;
    xs.contiguous()?.apply_op1(Dropout { seed, threshold: threshold as u32, kept })
}

/// `xs` (rows, inputs) times `weight` (outputs, inputs) transposed. The way back gives the weight's gradient as the weight is laid out.
pub(crate) fn linear(xs: &Tensor, weight: &Tensor) -> Result<Tensor> {
    xs.contiguous()?.apply_op2(&weight.contiguous()?, Linear)
}

/// `xs` (.., width) with `bias` (width) added to every row.
pub(crate) fn add_bias(xs: &Tensor, bias: &Tensor) -> Result<Tensor> {
    xs.contiguous()?.apply_op2(&bias.contiguous()?, AddBias)
}

/// GELU by the error function.
pub(crate) fn gelu(xs: &Tensor) -> Result<Tensor> {
    xs.contiguous()?.apply_op1(Gelu)
}

/// Layer normalisation over the last dimension without a shift, or with `is_centred` false by the root mean square alone.
pub(crate) fn norm(xs: &Tensor, weight: &Tensor, epsilon: f32, is_centred: bool) -> Result<Tensor> {
    xs.contiguous()?.apply_op2(&weight.contiguous()?, Norm { epsilon, is_centred })
}

/// The sum over all rows of `xs` (.., width), by a product, which takes them in a fixed order.
pub(super) fn sum_of_rows(xs: &Tensor) -> Result<Tensor> {
    let xs = xs.reshape(((), xs.dim(D::Minus1)?))?;
    Tensor::ones((1, xs.dim(0)?), xs.dtype(), xs.device())?.matmul(&xs)?.squeeze(0)
}

#[derive(Clone, Copy)]
struct Dropout {
    seed: u64,
    threshold: u32,
    kept: f32,
}

impl CustomOp1 for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        only_on_a_gpu(self.name())
    }

    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let device = &storage.device;
        let (xs, count) = (values::<f32>(storage, layout)?, layout.shape().elem_count() as u64);
        // SAFETY: the kernel writes every value.
        let ys = unsafe { device.alloc::<f32>(count as usize) }?;
        launch!(device, "dropout", by_elements(), &xs, &ys, &count, &self.seed, &self.threshold, &self.kept);
        Ok((CudaStorage::wrap_cuda_slice(ys, device.clone()), layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, to_result: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(to_result.contiguous()?.apply_op1_no_bwd(self)?))
    }
}

struct Linear;

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        only_on_a_gpu(self.name())
    }

    fn cuda_fwd(
        &self,
        xs: &CudaStorage,
        layout: &Layout,
        weight: &CudaStorage,
        of_weight: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let ((rows, inputs), (outputs, _)) = (layout.shape().dims2()?, of_weight.shape().dims2()?);
        let ys = xs.matmul(weight, (1, rows, outputs, inputs), layout, &of_weight.transpose(0, 1)?)?;
        Ok((ys, (rows, outputs).into()))
    }

    fn bwd(
        &self,
        xs: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        to_result: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let to_result = to_result.contiguous()?;
        Ok((Some(to_result.matmul(weight)?), Some(to_result.t()?.matmul(xs)?)))
    }
}

struct AddBias;

impl CustomOp2 for AddBias {
    fn name(&self) -> &'static str {
        "add-bias"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        only_on_a_gpu(self.name())
    }

    fn cuda_fwd(
        &self,
        xs: &CudaStorage,
        layout: &Layout,
        bias: &CudaStorage,
        of_bias: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        by_numbers!(xs, |T, ending| {
            let device = &xs.device;
            let (width, bias) = (rows_and_width(layout)?.1 as u32, values::<T>(bias, of_bias)?);
            let (xs, count) = (values::<T>(xs, layout)?, layout.shape().elem_count() as u64);
            // SAFETY: the kernel writes every value.
            let ys = unsafe { device.alloc::<T>(count as usize) }?;
            launch!(device, &format!("add_bias_{ending}"), by_elements(), &xs, &bias, &ys, &count, &width);
            Ok((CudaStorage::wrap_cuda_slice(ys, device.clone()), layout.shape().clone()))
        })
    }

    fn bwd(
        &self,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        to_result: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        Ok((Some(to_result.clone()), Some(sum_of_rows(to_result)?)))
    }
}

struct Gelu;

impl CustomOp1 for Gelu {
    fn name(&self) -> &'static str {
        "gelu"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        only_on_a_gpu(self.name())
    }

    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        by_numbers!(storage, |T, ending| {
            let device = &storage.device;
            let (xs, count) = (values::<T>(storage, layout)?, layout.shape().elem_count() as u64);
            // SAFETY: the kernel writes every value.
            let ys = unsafe { device.alloc::<T>(count as usize) }?;
            launch!(device, &format!("gelu_{ending}"), by_elements(), &xs, &ys, &count);
            Ok((CudaStorage::wrap_cuda_slice(ys, device.clone()), layout.shape().clone()))
        })
    }

    fn bwd(&self, input: &Tensor, _: &Tensor, to_result: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(input.apply_op2_no_bwd(&to_result.contiguous()?, &GeluBackward)?))
    }
}

/// Of GELU's input and the gradient of its result: the gradient of the input.
struct GeluBackward;

impl CustomOp2 for GeluBackward {
    fn name(&self) -> &'static str {
        "gelu-backward"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        only_on_a_gpu(self.name())
    }

    fn cuda_fwd(
        &self,
        xs: &CudaStorage,
        layout: &Layout,
        to_result: &CudaStorage,
        of_result: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (device, count) = (&xs.device, layout.shape().elem_count() as u64);
        let (xs, to_result) = (values::<f32>(xs, layout)?, values::<f32>(to_result, of_result)?);
        // SAFETY: the kernel writes every value.
        let to_xs = unsafe { device.alloc::<f32>(count as usize) }?;
        launch!(device, "gelu_backward", by_elements(), &xs, &to_result, &to_xs, &count);
        Ok((CudaStorage::wrap_cuda_slice(to_xs, device.clone()), layout.shape().clone()))
    }
}

#[derive(Clone, Copy)]
struct Norm {
    epsilon: f32,
    is_centred: bool,
}

impl CustomOp2 for Norm {
    fn name(&self) -> &'static str {
        "norm"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        only_on_a_gpu(self.name())
    }

    fn cuda_fwd(
        &self,
        xs: &CudaStorage,
        layout: &Layout,
        weight: &CudaStorage,
        of_weight: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (device, (rows, width)) = (&xs.device, rows_and_width(layout)?);
        let (xs, weight) = (values::<f32>(xs, layout)?, values::<f32>(weight, of_weight)?);
        // SAFETY: the kernel writes every value.
        let ys = unsafe { device.alloc::<f32>(rows * width) }?;
        let (count, width, centred) = (rows as i64, width as i32, i32::from(self.is_centred));
        launch!(
            device,
            "normalise",
            by_rows(rows),
            &xs,
            &weight,
            &ys,
            &count,
            &width,
            &self.epsilon,
            &centred
        );
        Ok((CudaStorage::wrap_cuda_slice(ys, device.clone()), layout.shape().clone()))
    }

    fn bwd(
        &self,
        input: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        to_result: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let both = input.apply_op3_no_bwd(weight, &to_result.contiguous()?, &NormBackward(*self))?;
        Ok((Some(both.get(0)?), Some(sum_of_rows(&both.get(1)?)?)))
    }
}

/// Of the input, the weight and the gradient of the result: the gradient of the input and, for each row, that of the weight, (2, ..).
struct NormBackward(Norm);

impl CustomOp3 for NormBackward {
    fn name(&self) -> &'static str {
        "norm-backward"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        only_on_a_gpu(self.name())
    }

    fn cuda_fwd(
        &self,
        xs: &CudaStorage,
        layout: &Layout,
        weight: &CudaStorage,
        of_weight: &Layout,
        to_result: &CudaStorage,
        of_result: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (device, (rows, width)) = (&xs.device, rows_and_width(layout)?);
        let (xs, weight, to_result) = (
            values::<f32>(xs, layout)?,
            values::<f32>(weight, of_weight)?,
            values::<f32>(to_result, of_result)?,
        );
        // SAFETY: the kernel writes every value.
        let both = unsafe { device.alloc::<f32>(2 * rows * width) }?;
        let (to_xs, to_weight) = (both.slice(..rows * width), both.slice(rows * width..));
        let (count, wide, centred) = (rows as i64, width as i32, i32::from(self.0.is_centred));
        launch!(
            device,
            "normalise_backward",
            by_rows(rows),
            &xs,
            &weight,
            &to_result,
            &to_xs,
            &to_weight,
            &count,
            &wide,
            &self.0.epsilon,
            &centred
        );
        let shape = Shape::from([&[2], layout.shape().dims()].concat());
        Ok((CudaStorage::wrap_cuda_slice(both, device.clone()), shape))
    }
}
