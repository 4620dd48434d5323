//! The architectures: for each its config, its model over candle, and its heads where it has some.

pub(crate) mod alibi;
pub(crate) mod bart;
pub(crate) mod bert;
pub(crate) mod decoder;
pub(crate) mod gpt2;
pub(crate) mod llama;
mod model_config;
pub(crate) mod modernbert;
pub(crate) mod registry;
pub(crate) mod static_embedding;
pub(crate) mod t5;
pub(crate) mod wrong;

pub use model_config::ModelConfig;
