//! The progress of an index build.

/// The progress of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The number of vectors on disk.
    Encoded(u64),
    /// The number of vectors in the index.
    Indexed {
        /// Finished.
        done: u64,
        /// In all.
        total: u64,
    },
}
