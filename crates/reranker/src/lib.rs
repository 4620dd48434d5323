//! Rerankers: how well each of a query's passages answers it.
//!
//! Everything here answers [`Reranker::score`]. [`CrossEncoder`] reads query and passage together; [`TfIdf`] and [`Cosine`]
//! compare what they make of each by itself; [`Named`] and [`Place`] look at titles and order alone; [`Combined`] sums what
//! several say, each asked in one or more ways ([`View`]). [`open`] loads what a folder holds.

mod cosine;
mod cross_encoder;
mod error;
mod pooled;
mod saved;
mod surface;
mod tfidf;
mod view;

pub use cosine::{Cosine, CosineOptions};
pub use cross_encoder::{CrossEncoder, CrossEncoderOptions};
pub use error::{Error, Result};
pub use pooled::PagePool;
pub use saved::{COUNTS, Combined, Computing, RERANKER, Saved, SavedPart, Term, open, standardise};
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
