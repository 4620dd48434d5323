//! Integration tests of this crate, in one program so that it is linked once.

mod documents;
mod kilt_configs;
#[path = "../../../documents/tests/it/make.rs"]
mod make;
mod predictions;
mod system;
