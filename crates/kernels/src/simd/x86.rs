//! The instruction sets of x86-64.

use std::arch::x86_64::*;

use super::AHEAD;

/// The size of a cache line in bytes.
const LINE: usize = 64;

/// Prefetches each cache line of `values`.
#[inline(always)]
fn prefetch<T>(values: &[T]) {
    for at in (0..size_of_val(values)).step_by(LINE) {
        // SAFETY: every x86-64 machine has SSE, the address is inside `values`, and no memory is changed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(values.as_ptr().cast::<i8>().add(at)) };
    }
}

/// Prefetches two cache lines, [`AHEAD`] bytes after `from`, into the L2 cache.
#[inline(always)]
fn prefetch_ahead<T>(from: *const T) {
    for line in 0..2 {
        let from = from.cast::<i8>().wrapping_add(AHEAD + line * LINE);
        // SAFETY: every x86-64 machine has SSE. A prefetch does not change memory, and does not fail for
        // invalid addresses.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from) };
    }
}

mod avx2;
mod avx512;
pub(crate) use avx2::Avx2;
pub(crate) use avx512::{Avx512, Vnni, transpose};
