//! Integration tests of this crate, in one program so that it is linked once.

mod bi_encoder;
mod dense;
mod dense_index;
mod filter;
mod folder_settings;
mod folders;
