//! Knowledge graph embeddings: vectors of entities and relations whose scores tell which triples hold.
//!
//! Every model makes a vector of a question, an entity with a relation, and compares it with the vectors of entities: by
//! inner product (DistMult, ComplEx, RESCAL, TuckER, ConvE) or by distance (TransE, RotatE). So one engine trains and
//! scores all of them: products of questions with all entities, a loss row by row, gradients by hand. Work is cut into
//! pieces of fixed sizes, so that results do not depend on the number of threads.

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
