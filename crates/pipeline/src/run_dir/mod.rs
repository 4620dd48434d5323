//! A run's folder: its lock, its journals, the keys of finished steps, the files that they were made from, its manifest.

pub(crate) mod folder;
pub(crate) mod inputs;
pub(crate) mod integrity;
pub(crate) mod journal;
pub(crate) mod key;
pub mod manifest;
pub(crate) mod step;
pub(crate) mod training;
