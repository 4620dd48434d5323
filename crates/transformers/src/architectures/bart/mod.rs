//! BART (Lewis et al. 2020).

mod config;
mod model;

pub use config::BartConfig;
pub use model::Bart;
pub(crate) use model::{EPSILON, POSITION_OFFSET};
