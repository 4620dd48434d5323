//! Support for NVIDIA GPUs in addition to candle's operations: opening a GPU, copying results back, and fused operations.
//! A fused operation is one kernel forward (in f32, f16 and bf16) and one backward (in f32); candle takes up to ten.

mod heads;
mod open;
mod operations;
mod read;
mod step;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, PoisonError};

use candle_core::{
    CudaDevice, CudaStorage, D, DType, Layout, Result, Storage, Tensor,
    cuda_backend::{
        CudaDType, WrapErr,
        cudarc::{
            driver::{CudaFunction, CudaView, LaunchConfig},
            nvrtc::{CompileOptions, compile_ptx_with_opts},
        },
    },
};

pub(crate) use heads::{attention_weights, merge_heads, split_heads};
pub(crate) use open::open;
pub(crate) use operations::{add_bias, dropout, gelu, linear, norm};
pub(crate) use read::read;
pub use step::{adam, sum_of_squares};

/// Threads of a block.
const BLOCK: u32 = 256;
/// Blocks of an operation that goes through its elements: some for each multiprocessor of a large GPU.
const BLOCKS: u32 = 1024;
/// Threads that take a row.
const WARP: u32 = 32;

/// Whether `xs` is on a GPU in f32, as all operations here take it.
pub(crate) fn applies(xs: &Tensor) -> bool {
    xs.device().is_cuda() && xs.dtype() == DType::F32
}

/// Whether `xs` is on a GPU in numbers that those take which are for inference too.
pub(crate) fn infers(xs: &Tensor) -> bool {
    xs.device().is_cuda() && matches!(xs.dtype(), DType::F32 | DType::F16 | DType::BF16)
}

/// The kernel called `name`. The first call compiles all of them.
fn kernel(device: &CudaDevice, name: &str) -> Result<CudaFunction> {
    /// The compute capability and the kernels compiled for it.
    static COMPILED: Mutex<Option<(String, String)>> = Mutex::new(None);
    let stream = device.cuda_stream();
    let (major, minor) = stream.context().compute_capability().w()?;
    let kind = format!("compute_{major}{minor}");
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if compiled.as_ref().is_none_or(|(other, _)| *other != kind) {
        let options = CompileOptions {
            options: vec![format!("--gpu-architecture={kind}")],
            ..CompileOptions::default()
        };
        let ptx = compile_ptx_with_opts(include_str!("kernels.cu"), options)
            .map_err(|error| candle_core::Error::Msg(format!("the kernels for {kind}: {error:?}")))?;
        *compiled = Some((kind.clone(), ptx.to_src()));
    }
    let ptx = compiled.as_ref().map_or("", |(_, ptx)| ptx.as_str());
    Ok(device.get_or_load_custom_func(name, &kind, ptx)?.into_cuda_function())
}

/// The values of a contiguous tensor on a GPU.
fn values<'a, T: CudaDType>(storage: &'a CudaStorage, layout: &Layout) -> Result<CudaView<'a, T>> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(storage.as_cuda_slice::<T>()?.slice(start..end)),
        None => candle_core::bail!("a kernel needs contiguous values"),
    }
}

/// Runs a body with the type `$T` of a storage's numbers, and the suffix of its kernels' names.
macro_rules! by_numbers {
    ($storage:expr, |$T:ident, $ending:ident| $body:expr) => {
        match $storage.dtype() {
            candle_core::DType::F32 => {
                type $T = f32;
                let $ending = "f32";
                $body
            }
            candle_core::DType::F16 => {
                type $T = half::f16;
                let $ending = "f16";
                $body
            }
            candle_core::DType::BF16 => {
                type $T = half::bf16;
                let $ending = "bf16";
                $body
            }
            other => candle_core::bail!("expected f32, f16 or bf16, found {other:?}"),
        }
    };
}

/// Writes a kernel's arguments and starts it.
macro_rules! launch {
    ($device:expr, $name:expr, $config:expr, $($argument:expr),+) => {{
        let (function, stream) = ($crate::cuda::kernel($device, $name)?, $device.cuda_stream());
        let mut launch = stream.launch_builder(&function);
        $(launch.arg($argument);)+
        // SAFETY: the arguments are those that the kernel declares, in number, type and order, and each buffer holds as many
        // values as the size arguments state.
        unsafe { launch.launch($config) }.w()?;
    }};
}
use by_numbers;
use launch;

fn only_on_a_gpu<T>(name: &str) -> Result<T> {
    candle_core::bail!("{name}: expected values on a GPU")
}

/// Rows and their width.
fn rows_and_width(layout: &Layout) -> Result<(usize, usize)> {
    let width = layout.shape().dim(D::Minus1)?;
    Ok((layout.shape().elem_count() / width, width))
}

/// Runs `f` on the f32 values of a contiguous tensor on a GPU.
fn with_values<T>(tensor: &Tensor, f: impl FnOnce(CudaView<'_, f32>) -> Result<T>) -> Result<T> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cuda(storage) => f(values(storage, layout)?),
        _ => candle_core::bail!("a kernel needs values on a GPU"),
    }
}

/// For a kernel that goes through its elements.
fn by_elements() -> LaunchConfig {
    LaunchConfig { grid_dim: (BLOCKS, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 }
}

/// For a kernel of which a warp takes a row.
fn by_rows(rows: usize) -> LaunchConfig {
    let rows_each = BLOCK / WARP;
    LaunchConfig {
        grid_dim: ((rows as u32).div_ceil(rows_each), 1, 1),
        block_dim: (WARP, rows_each, 1),
        shared_mem_bytes: 0,
    }
}
