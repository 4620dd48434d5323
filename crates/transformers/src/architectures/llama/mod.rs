//! LLaMA (Touvron et al. 2023) and decoders of its shape, from Hugging Face's folders and from GGUF files.

mod checks;
mod config;
mod defaults;
mod derived;
mod gguf;
mod kind;
mod model;
mod names;
mod rope;

pub use config::LlamaConfig;
pub use gguf::Gguf;
pub use kind::LlamaKind;
pub(crate) use kind::{HeadNorms, NormKind, PartNorms};
pub use model::Llama;
pub(crate) use names::{Inner, Inputs};
pub(crate) use rope::Rope;
