//! What there is for NVIDIA GPUs beside candle's own operations: how one is opened, and operations for training in f32, each one kernel
//! forward and one backward where candle's tape takes up to ten.

mod open;
mod operations;
mod step;

use std::sync::{Mutex, PoisonError};

use candle_core::{
    CudaDevice, CudaStorage, DType, Layout, Result, Storage, Tensor,
    cuda_backend::{
        WrapErr,
        cudarc::{
            driver::{CudaFunction, CudaView, LaunchConfig},
            nvrtc::{CompileOptions, compile_ptx_with_opts},
        },
    },
};

pub(crate) use open::open;
pub(crate) use operations::{add_bias, dropout, gelu, norm, softmax};
pub(crate) use step::{adam, sum_of_squares};

/// Threads of a block.
const BLOCK: u32 = 256;
/// Blocks of an operation that goes through its elements: some for each multiprocessor of a large GPU.
const BLOCKS: u32 = 1024;
/// Threads that take a row.
const WARP: u32 = 32;

/// Whether the operations here take `xs`: f32 on a GPU.
pub(crate) fn applies(xs: &Tensor) -> bool {
    xs.device().is_cuda() && xs.dtype() == DType::F32
}

/// The kernel called `name`. All are compiled when the first is asked for.
fn kernel(device: &CudaDevice, name: &str) -> Result<CudaFunction> {
    /// The compiled kernels, for the kind of GPU that is named beside them.
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

/// The f32 values of a contiguous tensor on a GPU.
fn values<'a>(storage: &'a CudaStorage, layout: &Layout) -> Result<CudaView<'a, f32>> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(storage.as_cuda_slice::<f32>()?.slice(start..end)),
        None => candle_core::bail!("a kernel needs contiguous values"),
    }
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
