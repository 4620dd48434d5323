//! ModernBERT (Warner et al. 2024).

mod config;
mod head;
mod model;

pub use config::ModernBertConfig;
pub(crate) use head::head;
pub use model::ModernBert;
