//! T5 (Raffel et al. 2020), version 1.0 and 1.1.

mod config;
mod model;

pub use config::T5Config;
pub use model::T5;
pub(crate) use model::{bucket, position_bias};
