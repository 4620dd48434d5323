//! Rerankers: scores of passages for a query.
//!
//! All implement [`Reranker::score`]. [`CrossEncoder`] reads the query and a passage together. [`TfIdf`] and [`Cosine`]
//! compare vectors of them. [`Named`] and [`Place`] use the title and the order alone. [`Combined`] is a weighted sum of
//! others, each with one or more [`View`]s of the query.
//!
//! [`RerankerOptions`] lists the kinds that a config can name; each implements [`RerankerKind`]. [`open`] loads any
//! reranker that a training saved.

mod combined;
mod cosine;
mod cross_encoder;
mod error;
mod kind;
mod pooled;
mod registry;
mod saved;
mod surface;
mod tfidf;
mod view;

pub use combined::{Combined, Term, standardise};
pub use cosine::{Cosine, CosineOptions};
pub use cross_encoder::{CrossEncoder, CrossEncoderOptions};
pub use error::{Error, Result};
pub use kind::RerankerKind;
pub use pooled::PagePool;
pub use registry::{CombinedOptions, RerankerOptions, TfIdfOptions};
pub use saved::{COUNTS, Computing, RERANKER, Saved, SavedPart, open};
use sporran_kilt::{Passage, Query};
pub use surface::{Named, Place};
pub use tfidf::{TfIdf, TitleSimilarity};
pub use view::{Asks, View};

/// Scores passages for a query.
///
/// Score `i` is that of `passages[i]`; greater is better. Scores of one query can be compared with each other. Where a
/// reranker does not say so, a score does not depend on the passages beside it but for the rounding of sums; [`Place`]'s
/// and [`Combined`]'s do.
pub trait Reranker: Send + Sync {
    /// How well each passage answers the query.
    ///
    /// # Errors
    /// Where the tokenizer or the model fails.
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>>;

    /// How near each passage is to all of them: the mean of its scores where they are the queries, one after the other.
    ///
    /// # Errors
    /// Where the tokenizer or the model fails.
    fn centrality(&self, passages: &[&Passage]) -> Result<Vec<f32>> {
        let mut means = vec![0.0; passages.len()];
        for passage in passages {
            let scores = self.score(&Query::of_text("", passage_text(passage)), passages)?;
            means.iter_mut().zip(scores).for_each(|(mean, score)| *mean += score / passages.len() as f32);
        }
        Ok(means)
    }
}

/// A passage as a model reads it: its title, where there is one, before its text.
#[must_use]
pub fn passage_text(passage: &Passage) -> String {
    if passage.title.is_empty() {
        passage.text.clone()
    } else {
        format!("{} {}", passage.title, passage.text)
    }
}
