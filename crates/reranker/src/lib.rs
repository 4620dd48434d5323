//! Rerankers: how well each of a query's passages answers it.
//!
//! Everything here answers [`Reranker::score`]. [`CrossEncoder`] reads query and passage together.

mod cross_encoder;
mod error;

pub use cross_encoder::{CrossEncoder, CrossEncoderOptions};
pub use error::{Error, Result};
use sporran_kilt::{Passage, Query};

/// Scores passages for a query.
///
/// Score `i` is that of `passages[i]`; greater is better. Scores of one query can be compared with each other, and a
/// score does not depend on the passages beside it but for the rounding of sums.
pub trait Reranker: Send + Sync {
    /// How well each passage answers the query.
    ///
    /// # Errors
    /// Where the tokenizer or the model fails.
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>>;
}
