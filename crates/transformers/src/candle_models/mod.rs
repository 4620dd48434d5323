//! Decoder-only models of the crate `candle-transformers`, behind [`CausalLm`](crate::CausalLm).
//!
//! [`CandleLm`] is one. `folders` lists the architectures of model folders, `gguf` those of GGUF files, one line each. A
//! model keeps the keys and values of one sequence itself, masks no padding and returns the logits of the last
//! position only. So it reads one sequence at a time, and beams are refused.

mod config;
mod engine;
mod folders;
mod gguf;
mod lm;
mod sequence;
mod weights;

pub use engine::Engine;
pub use lm::CandleLm;
pub(crate) use {folders::is_folder_type, sequence::CandleSequence};
