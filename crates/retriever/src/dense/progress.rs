//! How far a build of an index is.

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// So many vectors are on disk.
    Encoded(u64),
    /// So many vectors of so many are in their place in the index.
    Indexed {
        /// In place.
        done: u64,
        /// In all.
        total: u64,
    },
}
