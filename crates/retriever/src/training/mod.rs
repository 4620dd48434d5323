//! Training of a retriever's encoders: the kinds of `[encoder-training]` that this stage owns.

mod kind;
mod registry;

pub use kind::RetrieverTrainingKind;
pub use registry::RetrieverTraining;
