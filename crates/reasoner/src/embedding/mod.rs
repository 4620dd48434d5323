//! Knowledge graph embeddings: vectors of entities and relations that score triples.
//!
//! Every model computes a question vector from an entity and a relation, and compares it with the entity
//! vectors. DistMult, ComplEx, RESCAL, TuckER and ConvE compare by inner product, TransE and RotatE by
//! distance. So one engine trains and scores all of them: matrix products, a loss for each row, and
//! hand-written gradients. Work units have fixed sizes, so results do not depend on the number of threads.

mod among;
mod batch;
pub(crate) mod checkpoint;
mod classify;
mod convolution;
mod dense;
mod euclidean;
mod evaluate;
pub(crate) mod file;
mod interaction;
mod loss;
mod matrices;
mod mixture;
mod model;
mod negatives;
mod normalisation;
pub(crate) mod optimizer;
mod options;
mod parameters;
pub(crate) mod questions;
mod relation_prediction;
mod sample;
pub(crate) mod scorer;
mod step;
mod table;
mod trainer;
mod training_options;
mod vectors;

pub use crate::learning::{Outcome, Progress};
pub use classify::{ClassificationReport, LogProbability, RelationAccuracy, classify, log_probabilities};
pub use evaluate::{LinkReport, LinkScores, Ranks, evaluate, ranks};
pub use mixture::Mixture;
pub use model::EmbeddingModel;
pub use options::{EmbeddingOptions, Initial, ModelKind, Norm, Storage};
pub use scorer::TripleScorer;
pub use trainer::{Training, train};
pub use training_options::{LossKind, OptimizerKind, Regime, Regularizer, TrainingOptions, Weight};
