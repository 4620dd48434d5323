//! Retrievers: from a query to the passages that may answer it.
//!
//! Everything here answers [`Retriever::retrieve`]. [`sparse`] matches words: BM25 and DrQA's tf-idf, over inverted
//! indexes on disk. [`dense`] turns texts into vectors.

pub mod dense;
mod error;
mod layout;
pub mod sparse;

pub use error::{Error, Result};
use sporran_kilt::{Hit, Query};

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
}
