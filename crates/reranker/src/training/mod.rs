//! Training of rerankers on queries with graded passages, and in [`contrast`] on positive and negative passages.
//!
//! [`RerankerTraining`] lists the kinds that a config can name. Each implements [`RerankerTrainingKind`] and has a file.

mod combine;
pub mod contrast;
mod cosine;
mod kind;
mod masked_lm;
mod registry;
mod session;
mod similarities;
mod tfidf;
mod tuned;
mod untrained;
mod weights;

pub use combine::CombineOptions;
pub use cosine::EncoderOptions;
pub use kind::RerankerTrainingKind;
pub(crate) use kind::check_from;
pub use masked_lm::MaskedLmOptions;
pub use registry::RerankerTraining;
pub use session::{GradedQuery, RerankerSession};
pub use tfidf::NoOptions;
pub use tuned::{TunedBiEncoderOptions, TunedCrossEncoderOptions, TunedOptions};
