//! Aligned memory for tiles. Weights and long-lived states are page-aligned, in huge pages if available.
//! Temporary values are aligned to a cache line.

use std::{
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    slice,
};

use memmap2::{MmapMut, MmapOptions};

/// Types for which any bytes are valid.
pub trait Plain: Copy + Send + Sync {}
impl Plain for f32 {}
impl Plain for i8 {}
impl Plain for u8 {}
impl Plain for u16 {}

/// From this size on, huge pages are requested: they save page walks when weights are streamed.
const HUGE: usize = 2 << 20;

/// A fixed number of values, initially zero, aligned to a page. The system clears a page at its first write,
/// on the writing thread.
pub struct Buffer<T> {
    map: MmapMut,
    length: usize,
    values: PhantomData<T>,
}

impl<T: Plain> Buffer<T> {
    /// Allocates `length` zeros.
    ///
    /// # Panics
    /// If the system is out of memory, like every allocation here.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        let bytes = (length * size_of::<T>()).max(1);
        let map = MmapOptions::new().len(bytes).map_anon().expect("out of memory");
        #[cfg(target_os = "linux")]
        if bytes >= HUGE {
            // Only advice: otherwise the pages are small.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Self { map, length, values: PhantomData }
    }

    /// The values, mutable.
    pub fn values_mut(&mut self) -> &mut [T] {
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

/// Values aligned to a cache line, which ordinary allocations rarely are. Reading a vector across two lines
/// takes as long as two vectors.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    lines: Vec<Line>,
    length: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([f32; 16]);

impl Lines {
    /// Allocates `length` zeros.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        let mut lines = Self::default();
        lines.resize(length);
        lines
    }

    /// Changes the number of values. Existing ones are kept; new ones are zero.
    pub fn resize(&mut self, length: usize) {
        let (before, there) = (self.length, self.lines.len() * 16);
        self.lines.resize(length.div_ceil(16), Line([0.0; 16]));
        self.length = length;
        // New lines are zero.
        self[before.min(length)..there.min(length)].fill(0.0);
    }
}

impl Deref for Lines {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: lines are 16 values each, one after the other, and there are as many as the length needs.
        unsafe { slice::from_raw_parts(self.lines.as_ptr().cast(), self.length) }
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_what_was_there_and_begin_where_a_line_does() {
        let mut lines = Lines::zeroed(20);
        assert_eq!(lines.as_ptr().align_offset(64), 0);
        lines.copy_from_slice(&[1.0; 20]);
        lines.resize(5);
        assert_eq!(lines[..], [1.0; 5]);
        lines.resize(37);
        assert_eq!((&lines[..5], &lines[5..]), (&[1.0; 5][..], &[0.0; 32][..]));
        assert_eq!(lines.as_ptr().align_offset(64), 0);
    }
}
