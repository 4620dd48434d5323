//! Rerankers score the passages of a query.
//!
//! All implement [`Reranker::score`]. [`CrossEncoder`] reads the query and a passage together, and so does [`LlmReranker`], a
//! language model. [`RemoteReranker`] asks an HTTP endpoint. [`TfIdf`] and [`Cosine`]
//! compare their vectors. [`TitleMatch`] and [`PositionPrior`] use only the title and the order. [`Combined`] is a weighted
//! sum of rerankers, each with one or more [`QueryView`]s.
//!
//! [`RerankerOptions`] lists the kinds that a config can name. Each implements [`RerankerKind`]. [`open()`] loads any saved
//! reranker. [`training`] makes rerankers.

mod combined;
mod cosine;
mod cross_encoder;
mod error;
mod features;
mod kind;
mod llm;
mod open;
mod pooled;
mod registry;
mod remote;
mod saved;
mod takers;
mod tfidf;
pub mod training;
mod view;

pub use combined::{Combined, CombinedOptions, Term, standardise};
pub use cosine::{Cosine, CosineOptions};
pub use cross_encoder::{CrossEncoder, CrossEncoderOptions, CrossEncoderTraining};
pub use error::{Error, Result};
pub use features::{PositionPrior, TitleMatch};
pub use kind::RerankerKind;
pub use llm::{LlmFormat, LlmOptions, LlmReranker, LlmScore};
pub use open::open;
pub use pooled::PagePool;
pub use registry::RerankerOptions;
pub use remote::{RemoteReranker, RemoteRerankerOptions, RerankApi};
pub use saved::{COUNTS, Computing, RERANKER, Saved, SavedPart};
use sporran_kilt::{Passage, Query};
pub use tfidf::{TfIdf, TfIdfOptions, TitleSimilarity};
pub use view::{QuerySource, QueryView};

/// Scores passages for a query.
///
/// Score `i` is that of `passages[i]`. Higher is better. Scores of the same query are comparable. A score does not depend
/// on the other passages of the call, except for rounding errors, unless the reranker documents it. The scores of
/// [`PositionPrior`] and [`Combined`] do depend on them.
pub trait Reranker: Send + Sync {
    /// The relevance of each passage to the query.
    ///
    /// # Errors
    /// Errors of the tokenizer or the model.
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>>;

    /// The centrality of each passage: its mean score with each of the passages as the query, itself included.
    ///
    /// # Errors
    /// Errors of the tokenizer or the model.
    fn centrality(&self, passages: &[&Passage]) -> Result<Vec<f32>> {
        let mut means = vec![0.0; passages.len()];
        for passage in passages {
            let scores = self.score(&Query::of_text("", passage_text(passage)), passages)?;
            means.iter_mut().zip(scores).for_each(|(mean, score)| *mean += score / passages.len() as f32);
        }
        Ok(means)
    }
}

/// The input text of a passage: its title, if there is one, and its text.
#[must_use]
pub fn passage_text(passage: &Passage) -> String {
    if passage.title.is_empty() {
        passage.text.clone()
    } else {
        format!("{} {}", passage.title, passage.text)
    }
}
