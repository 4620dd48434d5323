//! Bringing results to main memory.

use std::sync::{Mutex, PoisonError};

use candle_core::{
    Result, Tensor,
    cuda_backend::{
        WrapErr,
        cudarc::driver::{DevicePtr, PinnedHostSlice, result, sys},
    },
};
use rayon::prelude::*;

use super::with_values;

/// Values that one thread copies at a time.
const PORTION: usize = 1 << 16;

/// The values of an f32 tensor on a GPU, row after row. They come through page-locked memory, which is kept for the next call: a
/// copy into pages that can be moved goes through the driver's own.
pub(crate) fn read(tensor: &Tensor) -> Result<Vec<f32>> {
    static LOCKED: Mutex<Option<PinnedHostSlice<f32>>> = Mutex::new(None);
    let (tensor, count) = (tensor.contiguous()?, tensor.elem_count());
    let stream = tensor.device().as_cuda_device()?.cuda_stream();
    let context = stream.context();
    let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = |memory: &PinnedHostSlice<f32>| memory.len() >= count && memory.context() == context;
    let mut memory = match locked.take().filter(fits) {
        Some(memory) => memory,
        // SAFETY: the memory is written before it is read, as far as it is.
        None => unsafe {
            context.alloc_pinned_with_flags(count.next_power_of_two(), sys::CU_MEMHOSTALLOC_PORTABLE)
        }
        .w()?,
    };
    let here = &mut memory.as_mut_slice().w()?[..count];
    with_values(&tensor, |values| {
        let (source, _reading) = values.device_ptr(&stream);
        // SAFETY: both hold `count` values, and both outlive the copy, which is waited for.
        unsafe { result::memcpy_dtoh_async(here, source, stream.cu_stream()) }.w()?;
        stream.synchronize().w()
    })?;
    let mut values = vec![0.0; count];
    values
        .par_chunks_mut(PORTION)
        .zip(here.par_chunks(PORTION))
        .for_each(|(values, here)| values.copy_from_slice(here));
    *locked = Some(memory);
    Ok(values)
}
