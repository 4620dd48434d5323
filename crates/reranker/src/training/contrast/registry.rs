//! The list of kinds of trainings on positive and negative passages.

use sporran_config::kinds;

use super::ContrastTrainingKind;
use crate::cross_encoder::CrossEncoderTraining;

kinds! {
    /// The kinds of `[encoder-training]` that make rerankers.
    pub enum ContrastRerankerTraining: dyn ContrastTrainingKind {
        /// `kind = "cross-encoder"`: a reranker that reads query and passage together.
        "cross-encoder" => CrossEncoder(CrossEncoderTraining),
    }
}
