//! Retrievers: from a query to candidate passages.
//!
//! All implement [`Retriever::retrieve`]. [`sparse`] matches words: BM25 and DrQA's tf-idf, over inverted
//! indexes on disk. [`dense`] compares vectors of texts. Others combine retrievers: [`fusion`] fuses several
//! rankings, [`iterative`] retrieves again with the results, and [`Filtered`] drops passages, for example those that a
//! [`Filter`] over their metadata does not accept.
//!
//! [`RetrieverOptions`] lists the kinds that a config can name. Each implements [`RetrieverKind`]. [`training`] trains
//! encoders.

pub mod dense;
pub mod entity;
mod error;
mod filter;
pub mod fusion;
pub mod hybrid;
pub mod iterative;
mod kind;
mod layout;
mod plan;
mod registry;
mod sharded;
mod site;
pub mod sparse;
mod titles;
pub mod training;

use std::time::Instant;

pub use error::{Error, Result};
pub use filter::{Filter, FilterOptions, Filtered, FilteredOptions, PassageFilter, Scalar, Selection};
pub use kind::RetrieverKind;
pub use layout::{VerifiedIndex, is_index, verify_index};
pub use plan::{IndexPlan, PlannedPassages};
pub use registry::RetrieverOptions;
pub use sharded::ShardedOptions;
pub use site::{BuildIndex, IndexRecall, Items, NewIndex, NewPart, PartFolders, PartSite, PlanIndex, Site};
use sporran_kilt::{Hit, PassageId, Query};
pub use titles::Titles;

/// Finds passages for queries.
///
/// Result `i` answers `queries[i]`: at most `k` hits, best first, ties by ascending passage id. There are
/// fewer if fewer passages match. A query's result does not depend on the other queries.
pub trait Retriever: Send + Sync {
    /// The best `k` passages of each query.
    ///
    /// # Errors
    /// An [`Error`] if an index is damaged or a model fails; a query without a match is no error.
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>>;

    /// [`retrieve`](Self::retrieve) among the passages that a filter accepts. The scores are those of the whole
    /// collection.
    ///
    /// Without an implementation of its own, a retriever is asked for more and more passages until enough of them
    /// are accepted or it has no more.
    ///
    /// # Errors
    /// As [`retrieve`](Self::retrieve).
    fn retrieve_filtered(
        &self,
        queries: &[Query],
        k: usize,
        filter: &PassageFilter<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        filter::widen(|queries, k| self.retrieve(queries, k), queries, k, filter)
    }

    /// Explains a query's ranking.
    ///
    /// # Errors
    /// As [`retrieve`](Self::retrieve).
    fn trace(&self, query: &Query, k: usize) -> Result<Trace> {
        let begin = Instant::now();
        let hits = self.retrieve(std::slice::from_ref(query), k)?.pop().unwrap_or_default();
        let (step, seconds) = ("search".to_owned(), begin.elapsed().as_secs_f64());
        Ok(Trace { step, query: query.text.clone(), seconds, hits, sets: Vec::new(), parts: Vec::new() })
    }
}

/// The trace of a ranking: the query, the results, and the traces of the retrievers that were used.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The description of this step.
    pub step: String,
    /// The query of this step.
    pub query: String,
    /// The time of this step, without that of its parts.
    pub seconds: f64,
    /// The results, best first.
    pub hits: Vec<Hit>,
    /// Passages that were ranked together, best first, with their scores.
    pub sets: Vec<(Vec<PassageId>, f32)>,
    /// The traces of the parts.
    pub parts: Vec<Trace>,
}

/// Scores passages for queries, whether a search would find them or not.
pub trait PassageScorer: Send + Sync {
    /// Score `j` of result `i` is that of `passages[i][j]` for `queries[i]`; greater is better. Scores have
    /// the order of magnitude of 1, so that they can be combined with other features: a cosine, or the
    /// covered share of the query.
    ///
    /// # Errors
    /// As [`Retriever::retrieve`].
    fn score(&self, queries: &[Query], passages: &[Vec<PassageId>]) -> Result<Vec<Vec<f32>>>;
}

impl<R: Retriever + ?Sized> Retriever for Box<R> {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        (**self).retrieve(queries, k)
    }

    fn retrieve_filtered(
        &self,
        queries: &[Query],
        k: usize,
        filter: &PassageFilter<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        (**self).retrieve_filtered(queries, k, filter)
    }

    fn trace(&self, query: &Query, k: usize) -> Result<Trace> {
        (**self).trace(query, k)
    }
}
