//! LLaMA (Touvron et al. 2023) and decoders of its shape, from Hugging Face's folders and from GGUF files.

mod architecture;
mod checks;
mod config;
mod defaults;
mod derived;
mod experts;
mod feed_forward;
mod fields;
mod gguf;
mod kind;
mod layer;
mod model;
mod names;
mod norm;
mod norms;
mod positions;
mod rope;

pub use config::{LlamaConfig, MptAttention};
pub(crate) use experts::Experts;
pub use gguf::Gguf;
pub use kind::LlamaKind;
pub use model::Llama;
pub(crate) use names::{Inner, Inputs, PROJECTED, PROJECTIONS, PartNames, SHARED, SHARED_GATE};
pub(crate) use norms::{HeadNorms, NormKind, OwnWeights, PartNorms};
pub(crate) use rope::Rope;
