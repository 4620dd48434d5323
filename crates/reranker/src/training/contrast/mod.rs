//! Training of rerankers on queries with positive and negative passages: the kinds of `[encoder-training]` that this stage
//! owns.

mod kind;
mod registry;

pub use kind::ContrastTrainingKind;
pub use registry::ContrastRerankerTraining;
