//! Integration tests of this crate, in one program so that it is linked once.

mod adapter;
mod hub;
mod tokenizers;
mod warnings;
