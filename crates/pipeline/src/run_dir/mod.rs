//! A run's folder: lock, journals, keys of finished steps, hashes of inputs, and manifest.

pub(crate) mod folder;
pub(crate) mod inputs;
pub(crate) mod integrity;
pub(crate) mod journal;
pub(crate) mod key;
pub mod manifest;
pub(crate) mod shard;
pub(crate) mod stale;
pub(crate) mod step;
pub(crate) mod training;
mod untouched;
