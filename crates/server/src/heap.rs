//! The allocator of a process that serves for weeks.
//!
//! glibc gives each thread a heap of its own, up to eight a core. Freed memory stays in the heap of the thread that asked for it,
//! so that the process grows until each heap has held its largest request.

use std::time::Duration;

/// How often free memory returns to the system.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// Lets the process have as many heaps as cores. Heaps that exist stay.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn limit() {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // SAFETY: the call takes a number, and the allocator's own lock guards what it sets.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, libc::c_int::try_from(cores).unwrap_or(libc::c_int::MAX)) };
}

/// Returns free memory to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn trim() {
    // SAFETY: the call takes a number, and locks each heap while it looks at it.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn limit() {}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn trim() {}
