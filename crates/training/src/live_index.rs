//! The index that a training of retrieval-augmented generation searches.

use std::path::Path;

use candle_core::Device;
use sporran_kilt::Hit;
use sporran_transformers::{EncoderRow, Pooling};

use crate::TunedEncoder;

/// An error of a retriever.
pub type IndexError = Box<dyn std::error::Error + Send + Sync>;

/// The initial encoder of questions.
pub struct QuestionEncoder {
    /// The encoder.
    pub encoder: TunedEncoder,
    /// The pooling of its states, if it has no head.
    pub pooling: Pooling,
}

/// A dense retriever during a training of retrieval-augmented generation. The vectors of passages stay as they are. The
/// vectors of questions are from the encoder that is trained.
pub trait LiveIndex: Sync {
    /// Opens the encoder of questions with its initial weights. `seed` is that of weights that the folder lacks.
    ///
    /// # Errors
    /// Errors of its folder.
    fn open_encoder(&self, seed: u64, device: &Device) -> Result<QuestionEncoder, IndexError>;

    /// The input of the encoder for each question.
    ///
    /// # Errors
    /// Errors of the tokenizer.
    fn rows(&self, questions: &[&str]) -> Result<Vec<EncoderRow>, IndexError>;

    /// The `k` passages with the largest inner products with each vector, best first.
    ///
    /// # Errors
    /// Errors of the index, and for vectors of another length.
    fn nearest(&self, vectors: &[Vec<f32>], k: usize) -> Result<Vec<Vec<Hit>>, IndexError>;

    /// The vectors of passages, each a title and a text.
    ///
    /// # Errors
    /// Errors of the tokenizer or the model.
    fn passage_vectors(&self, passages: &[(&str, &str)]) -> Result<Vec<Vec<f32>>, IndexError>;

    /// Saves the trained encoder of questions as the model of the retriever. `snapshot` has its weights; their names start
    /// with `prefix`.
    ///
    /// # Errors
    /// Errors of the folders.
    fn save_encoder(
        &self,
        snapshot: &Path,
        prefix: &str,
        trained: &QuestionEncoder,
    ) -> Result<(), IndexError>;
}
