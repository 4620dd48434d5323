//! BART (Lewis et al. 2020), mBART and Pegasus.

mod config;
mod model;

pub use config::{BartConfig, BartFamily};
pub use model::Bart;
pub(crate) use model::{EPSILON, POSITION_OFFSET, sinusoids};
