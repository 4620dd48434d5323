//! Retrievers: from a query to the passages that may answer it.
//!
//! Everything here answers [`Retriever::retrieve`]. [`sparse`] matches words: BM25 and DrQA's tf-idf, over inverted
//! indexes on disk. [`dense`] turns texts into vectors. The others are made of retrievers: [`fusion`] joins several
//! rankings, [`iterative`] asks again with what was found, and [`Filtered`] leaves passages out.

pub mod dense;
pub mod entity;
mod error;
mod filter;
pub mod fusion;
pub mod iterative;
mod layout;
pub mod sparse;
mod titles;

pub use error::{Error, Result};
pub use filter::Filtered;
pub use layout::{VerifiedIndex, is_index, verify_index};
use sporran_kilt::{Hit, PassageId, Query};
pub use titles::Titles;

/// Finds passages for queries.
///
/// Result `i` answers `queries[i]`: at most `k` hits, best first, ties by ascending passage id. Fewer than `k` come back
/// where fewer passages match at all; none for a query in which nothing can match. A query's result does not depend on
/// the queries beside it.
pub trait Retriever: Send + Sync {
    /// The best `k` passages of each query.
    ///
    /// # Errors
    /// An [`Error`] where an index turns out to be damaged or a model fails; a query without a match is no error.
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>>;

    /// How a query's ranking comes about.
    ///
    /// # Errors
    /// As [`retrieve`](Self::retrieve).
    fn trace(&self, query: &Query, k: usize) -> Result<Trace> {
        let hits = self.retrieve(std::slice::from_ref(query), k)?.pop().unwrap_or_default();
        let step = "search".to_owned();
        Ok(Trace { step, query: query.text.clone(), hits, sets: Vec::new(), parts: Vec::new() })
    }
}

/// How a ranking came about: what was asked, what was found, and the same of the retrievers that were asked for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// What was done.
    pub step: String,
    /// The query as this step asked it.
    pub query: String,
    /// What came out, best first.
    pub hits: Vec<Hit>,
    /// Passages that were ranked together, best first, with their scores.
    pub sets: Vec<(Vec<PassageId>, f32)>,
    /// The steps that this one is made of.
    pub parts: Vec<Trace>,
}

/// Says how well passages fit queries, whether a search would find them or not.
pub trait PassageScorer: Send + Sync {
    /// Score `j` of result `i` is that of `passages[i][j]` for `queries[i]`; greater is better. Scores are of the order of
    /// 1, so that they can be weighed against other features: a cosine, or the share of the query that a passage covers.
    ///
    /// # Errors
    /// As [`Retriever::retrieve`].
    fn score(&self, queries: &[Query], passages: &[Vec<PassageId>]) -> Result<Vec<Vec<f32>>>;
}

impl<R: Retriever + ?Sized> Retriever for Box<R> {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        (**self).retrieve(queries, k)
    }

    fn trace(&self, query: &Query, k: usize) -> Result<Trace> {
        (**self).trace(query, k)
    }
}
