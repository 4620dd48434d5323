//! BART (Lewis et al. 2020), mBART, Pegasus, Marian, M2M100 and Blenderbot.

mod config;
mod model;

pub use config::{BartConfig, BartFamily};
pub(crate) use config::{PositionKind, deserialize_windows, serialize_windows};
pub use model::Bart;
pub(crate) use model::{EPSILON, closed_sinusoids, sinusoids};
