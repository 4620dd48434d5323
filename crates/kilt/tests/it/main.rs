//! Integration tests of this crate, in one program so that it is linked once.

mod formats;
mod formats_samples;
mod scores;
