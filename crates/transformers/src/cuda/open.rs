//! Opening a GPU.

use candle_core::{
    Device, Result,
    cuda_backend::{
        WrapErr,
        cudarc::driver::{result, sys},
    },
};

/// Opens a GPU with one stream for all threads, so that work runs in the order of submission by any thread.
pub(crate) fn open(number: usize) -> Result<Device> {
    let device = Device::new_cuda_with_stream(number)?;
    let gpu = device.as_cuda_device()?;
    // SAFETY: events order the work of several streams, of which this device has one alone. Without them every tensor is spared
    // two events.
    unsafe { gpu.disable_event_tracking() };
    let context = gpu.cuda_stream().context().clone();
    let mut most = u64::MAX;
    // SAFETY: the context is that of an opened device, whose pool outlives it, and this attribute is a 64-bit number.
    unsafe {
        let pool = result::device::get_default_mem_pool(context.cu_device()).w()?;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // Freed memory stays in the pool. Otherwise each wait for a result returns it to the driver, and it is allocated again.
        result::mem_pool::set_attribute(pool, attribute, (&raw mut most).cast()).w()?;
    }
    Ok(device)
}
