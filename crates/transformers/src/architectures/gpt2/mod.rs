//! GPT-2 (Radford et al. 2019).

mod config;
mod model;

pub use config::Gpt2Config;
pub use model::Gpt2;
