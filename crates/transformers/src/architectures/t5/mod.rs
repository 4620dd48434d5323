//! T5 (Raffel et al. 2020), version 1.0 and 1.1, mT5, UMT5, LongT5 and Switch Transformers, and their encoders alone.

mod config;
mod encoder;
mod model;
mod sizes;
mod switch;

pub(crate) use config::{SUMMARY_BIASES, SUMMARY_NORM};
pub use config::{T5Config, T5Family};
pub(crate) use encoder::MOST_TOKENS;
pub use encoder::{T5Encoder, T5EncoderConfig};
pub use model::T5;
pub(crate) use model::{bucket, position_bias};
pub(crate) use sizes::SwitchSizes;
