//! Estimates of the resources of indexes before they are built, from a sample of their passages.

use serde::Serialize;
use sporran_kilt::store::SampledPassage;

/// The passages of a future store.
#[derive(Clone, Copy, Debug)]
pub struct PlannedPassages<'a> {
    /// Their number.
    pub count: u64,
    /// Titles and texts of some of them, from all parts of the source.
    pub sample: &'a [SampledPassage],
}

/// The estimated resources of an index.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IndexPlan {
    /// The kind, such as `bm25`.
    pub kind: &'static str,
    /// Bytes of the index on disk.
    pub disk_bytes: u64,
    /// The most bytes on disk during the build, with temporary files.
    pub build_disk_bytes: u64,
    /// The most bytes of memory that the build allocates.
    pub memory_bytes: u64,
    /// The most bytes of its files that the build maps. They are in memory as far as the system has room for them.
    pub mapped_bytes: u64,
    /// Seconds of the build, at the sample's speed; without the graph of an index of kind `hnsw`.
    pub seconds: f64,
}

/// Bytes of memory for each byte that is asked for: the allocator rounds up, and keeps what is freed.
pub(crate) const ALLOCATED: f64 = 1.2;
