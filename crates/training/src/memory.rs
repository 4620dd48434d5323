//! The memory of a process that trains.

/// While this exists, freed memory stays with the process.
///
/// A step asks for the same large tensors as the step before. glibc returns such memory to the system, which then clears each page
/// anew: on a small model that takes half of a step.
#[derive(Debug)]
pub struct KeptMemory(());

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use libc::{M_MMAP_THRESHOLD, M_TOP_PAD, M_TRIM_THRESHOLD, c_int};

    /// The options in training.
    pub(super) const KEEP: [(c_int, c_int); 3] =
        [(M_MMAP_THRESHOLD, c_int::MAX), (M_TRIM_THRESHOLD, c_int::MAX), (M_TOP_PAD, 64 << 20)];

    /// Those that glibc comes to by itself in a process that uses large blocks.
    pub(super) const USUAL: [(c_int, c_int); 3] =
        [(M_MMAP_THRESHOLD, 32 << 20), (M_TRIM_THRESHOLD, 64 << 20), (M_TOP_PAD, 128 << 10)];

    pub(super) fn set(options: [(c_int, c_int); 3]) {
        for (option, value) in options {
            // SAFETY: the call takes two numbers, and the allocator's own lock guards what it sets.
            unsafe { libc::mallopt(option, value) };
        }
    }

    pub(super) fn trim() {
        // SAFETY: the call takes a number, and locks each heap while it looks at it.
        unsafe { libc::malloc_trim(0) };
    }
}

impl KeptMemory {
    /// From now on.
    #[must_use]
    pub fn new() -> Self {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        glibc::set(glibc::KEEP);
        Self(())
    }
}

impl Default for KeptMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for KeptMemory {
    fn drop(&mut self) {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        {
            glibc::set(glibc::USUAL);
            glibc::trim();
        }
    }
}
