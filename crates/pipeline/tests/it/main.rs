//! Integration tests of this crate, in one program so that it is linked once.

mod kilt_configs;
mod predictions;
mod system;
