//! Encoders, encoder-decoders and decoders on a CPU, fast: weights packed once, activations in buffers that are used again, no padding, and
//! everything around a product done while its result is in the cache.
//!
//! The models are those of [`T5`](crate::T5), [`Bart`](crate::Bart), [`Bert`](crate::Bert) and [`Llama`](crate::Llama), which remain the oracle
//! of these, the training path and the path on a GPU.
//!
//! - The tokens of a batch lie one after the other: a short input costs what it costs alone, and attention runs over
//!   real lengths only.
//! - The keys and values of cross-attention are computed once an input, packed for products, and shared by its
//!   beams, whose queries are one tile.
//! - A self-attention cache is never moved: re-ordering beams changes the list of rows that each one descends from.
//! - The result of a row depends neither on the other rows of a batch nor on the number of threads.

mod build;
mod cache;
mod causal;
mod encoder;
mod kept;
mod layers;
mod ragged;
mod seq2seq;
mod stack;

pub use causal::FastLlama;
pub use encoder::FastEncoder;
pub use seq2seq::FastSeq2Seq;

pub(crate) use cache::State;
pub(crate) use kept::Kept;
