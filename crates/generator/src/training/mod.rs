//! Training of generators: `[train]`.
//!
//! [`TRAINED_KINDS`] lists the kinds that it trains. Each implements [`GeneratorTrainer`] in the folder of its generator.

mod kind;
mod options;
mod registry;
mod session;

pub use kind::GeneratorTrainer;
pub use options::{MatchingOptions, Target, TrainOptions, TrainSettings};
pub use registry::{TRAINED_KINDS, untrained};
pub(crate) use session::with_titles;
pub use session::{GeneratorTraining, LiveRetrieval, RetrievedExample, ValidationScore, mean_score};
