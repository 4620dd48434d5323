//! Decoder-only models of the crate `candle-transformers`, behind [`CausalLm`](crate::CausalLm).
//!
//! [`CandleLm`] is one. `folders` and `recurrent` have the loaders of model folders, which the registry lists; `gguf` lists those of GGUF files. A
//! model keeps the keys and values of one sequence itself, masks no padding and returns the logits of the last
//! position only. So it reads one sequence at a time, and beams are refused.

mod config;
mod engine;
pub(crate) mod folders;
mod gguf;
mod lm;
pub(crate) mod recurrent;
mod sequence;
mod weights;

pub use engine::Engine;
pub use lm::CandleLm;
pub(crate) use sequence::CandleSequence;
