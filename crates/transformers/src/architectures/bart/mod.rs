//! BART (Lewis et al. 2020), mBART, Pegasus, Marian, M2M100 and Blenderbot.

mod classifier;
mod config;
mod model;

pub use classifier::BartClassifierConfig;
pub(crate) use classifier::{BART_CLASSIFIER, classifier};
pub use config::{BartConfig, BartFamily};
pub(crate) use config::{PositionKind, deserialize_windows, serialize_windows};
pub use model::Bart;
pub(crate) use model::{EPSILON, closed_sinusoids, sinusoids};
