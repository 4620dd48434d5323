//! Integration tests of this crate, in one program so that it is linked once.

mod cross_encoder;
mod folder_settings;
mod llm;
