//! Integration tests of this crate, in one program so that it is linked once.

mod hub;
mod tokenizers;
mod warnings;
