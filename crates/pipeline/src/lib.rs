//! The pipeline crate.
