//! The interface of vector indexes.

use sporran_kernels::Filter;

use super::encoder::Embeddings;
use crate::Result;

/// Finds nearest vectors.
pub trait VectorIndex: Send + Sync {
    /// The length of a vector.
    fn dim(&self) -> usize;

    /// The number of vectors.
    fn len(&self) -> usize;

    /// Whether it is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For each query the `k` nearest vectors that pass `filter`, as number and score. The greatest score is
    /// first (by `total_cmp`), ties by ascending number. Fewer if there are fewer. A query's result does not
    /// depend on the other queries.
    ///
    /// # Errors
    /// [`Error::Vector`](crate::Error::Vector) for a query of another length or with values that are not finite;
    /// [`Error::Corrupt`](crate::Error::Corrupt) for a damaged index.
    fn search(
        &self,
        queries: &Embeddings,
        k: usize,
        filter: Option<Filter<'_>>,
    ) -> Result<Vec<Vec<(u32, f32)>>>;

    /// For each query the scores of the vectors in its list, in order. They equal those of a search.
    ///
    /// # Errors
    /// [`Error::Vector`](crate::Error::Vector) as for [`search`](Self::search), and for an unknown number.
    fn scores(&self, queries: &Embeddings, lists: &[Vec<u32>]) -> Result<Vec<Vec<f32>>>;
}

/// For each query the scores of the vectors in its list, in order. `scorer` makes the function that scores the vectors of a
/// query, once for each query.
pub(super) fn listed_scores<'q, S: Fn(u32) -> f32>(
    queries: &'q Embeddings,
    lists: &[Vec<u32>],
    scorer: impl Fn(&'q [f32]) -> S,
) -> Vec<Vec<f32>> {
    let one = |(query, ids): (&'q [f32], &Vec<u32>)| {
        let score = scorer(query);
        ids.iter().map(|id| score(*id)).collect()
    };
    queries.rows().zip(lists).map(one).collect()
}
