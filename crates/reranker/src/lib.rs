//! Rerankers: how well each of a query's passages answers it.
//!
//! Everything here answers [`Reranker::score`]. [`CrossEncoder`] reads query and passage together; [`TfIdf`] and [`Cosine`]
//! compare what they make of each by itself; [`Combined`] sums the scores of several. [`open`] loads what a folder holds.

mod cosine;
mod cross_encoder;
mod error;
mod pooled;
mod saved;
mod tfidf;

pub use cosine::{Cosine, CosineOptions};
pub use cross_encoder::{CrossEncoder, CrossEncoderOptions};
pub use error::{Error, Result};
pub use pooled::PagePool;
pub use saved::{COUNTS, Combined, Computing, RERANKER, Saved, SavedPart, Term, open, standardise};
use sporran_kilt::{Passage, Query};
pub use tfidf::{TfIdf, TitleSimilarity};

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

/// A passage as a model reads it: its title, where that is wanted and there is one, before its text.
#[must_use]
pub fn passage_text(passage: &Passage, titles: bool) -> String {
    if titles && !passage.title.is_empty() {
        format!("{} {}", passage.title, passage.text)
    } else {
        passage.text.clone()
    }
}
