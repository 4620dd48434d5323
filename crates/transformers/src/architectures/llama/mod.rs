//! LLaMA (Touvron et al. 2023) and decoders of its shape, from Hugging Face's folders and from GGUF files.

mod config;
mod gguf;
mod kind;
mod model;
mod rope;

pub use config::LlamaConfig;
pub use gguf::Gguf;
pub use kind::LlamaKind;
pub(crate) use kind::{HeadNorms, PartNorms};
pub use model::Llama;
pub(crate) use model::rotate;
pub(crate) use rope::Rope;
