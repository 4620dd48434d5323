//! Memory for weights: page-aligned, in huge pages where the system gives them.

use std::{fmt, marker::PhantomData, ops::Deref, slice};

use memmap2::{MmapMut, MmapOptions};

/// Types of which any bytes are a value.
pub(crate) trait Plain: Copy + Send + Sync {}
impl Plain for f32 {}
impl Plain for i8 {}

/// From this size on, huge pages are asked for: they save the page walks of streaming through weights.
const HUGE: usize = 2 << 20;

/// A fixed number of values, zero at first, that begin at a page boundary.
pub(crate) struct Buffer<T> {
    map: MmapMut,
    length: usize,
    values: PhantomData<T>,
}

impl<T: Plain> Buffer<T> {
    /// # Panics
    /// Where the system has no memory left, as every allocation here.
    pub(crate) fn zeroed(length: usize) -> Self {
        let bytes = (length * size_of::<T>()).max(1);
        let map = MmapOptions::new().len(bytes).map_anon().expect("out of memory");
        #[cfg(target_os = "linux")]
        if bytes >= HUGE {
            // Only advice: where it is not taken, the pages are small.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Self { map, length, values: PhantomData }
    }

    pub(crate) fn values_mut(&mut self) -> &mut [T] {
        // SAFETY: the mapping is at least `length * size_of::<T>()` bytes, aligned to a page, zeroed by the system,
        // and borrowed mutably; any bytes are a `T`.
        unsafe { slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.length) }
    }
}

impl<T: Plain> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: as in `values_mut`, with a shared borrow.
        unsafe { slice::from_raw_parts(self.map.as_ptr().cast(), self.length) }
    }
}

impl<T: Plain> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({})", self.length)
    }
}
