//! Fast encoders, encoder-decoders and decoders on a CPU. Weights are packed once, buffers of activations are reused, there is no padding, and
//! operations around a product run while its result is in the cache.
//!
//! The models are those of [`T5`](crate::T5), [`Bart`](crate::Bart), [`Bert`](crate::Bert) and [`Llama`](crate::Llama), which remain the
//! reference implementation, the training path and the path on a GPU.
//!
//! - Weights keep the coding of their file, 16 bits or blocks of a GGUF file, unless they are packed in int8.
//! - The tokens of a batch are contiguous: a short input costs the same as alone, and attention covers real lengths
//!   only.
//! - The keys and values of cross-attention are computed once an input, packed for products, and shared by its
//!   beams, whose queries are one tile.
//! - A self-attention cache is not moved: re-ordering beams changes the list of rows that each one descends from. So
//!   sequences of different lengths are in one batch, which others join and leave.
//! - The result of a row depends neither on the other rows of a batch nor on the number of threads.

mod beside;
mod build;
mod build_beside;
mod build_causal;
mod build_recurrent;
mod cache;
mod causal;
mod decoder;
mod delta;
mod disentangled;
mod encoder;
mod function;
mod kv_cache;
mod latent;
mod layers;
mod local;
mod memory;
mod mixture;
mod modernbert;
mod packer;
mod ragged;
mod recurrence;
mod rotary;
mod seq2seq;
mod short_convolution;
mod sinks;
mod stack;
mod state_convolution;
mod state_space;
mod steps;
mod t5_encoder;
mod weights;

pub use causal::PackedLlama;
pub use decoder::PackedDecoder;
pub use encoder::PackedEncoder;
pub use modernbert::PackedModernBert;
pub use seq2seq::PackedSeq2Seq;
pub use t5_encoder::PackedT5Encoder;

pub(crate) use cache::State;
pub(crate) use kv_cache::KvCache;
pub(crate) use weights::{StoredWeights, coding_of};
