//! Texts as vectors.

mod bi_encoder;
mod encoder;

pub use bi_encoder::{BiEncoder, BiEncoderOptions};
pub use encoder::{Embeddings, Encoder};
