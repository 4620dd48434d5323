//! The list of kinds of encoder trainings.

use sporran_config::kinds;

use super::RetrieverTrainingKind;
use crate::dense::BiEncoderTraining;

kinds! {
    /// The kinds of `[encoder-training]` whose encoders a retriever uses.
    pub enum RetrieverTraining: dyn RetrieverTrainingKind {
        /// `kind = "bi-encoder"`: one encoder for queries and passages, whose vectors are compared.
        "bi-encoder" => BiEncoder(BiEncoderTraining),
    }
}
