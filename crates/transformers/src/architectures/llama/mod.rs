//! LLaMA (Touvron et al. 2023) and Qwen 2, from Hugging Face's folders and from GGUF files.

mod config;
mod gguf;
mod model;

pub use config::{LlamaConfig, LlamaKind};
pub use gguf::Gguf;
pub use model::Llama;
pub(crate) use model::{rotate, rotation_steps};
