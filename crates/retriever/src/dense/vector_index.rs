//! The seam of every index over vectors.

use sporran_kernels::Filter;

use super::encoder::Embeddings;
use crate::Result;

/// Finds the vectors that are nearest to others.
pub trait VectorIndex: Send + Sync {
    /// The width of a vector.
    fn dim(&self) -> usize;

    /// How many vectors it holds.
    fn len(&self) -> usize;

    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For each query the `k` nearest vectors among those that `filter` lets through, as number and score: the greatest
    /// score first (by `total_cmp`), of equal scores the smaller number. Fewer where there are fewer. A query's result
    /// does not depend on the queries beside it.
    ///
    /// # Errors
    /// [`Error::Vector`](crate::Error::Vector) for a query of another width or with values that are not finite; [`Error::Corrupt`](crate::Error::Corrupt) where the
    /// index turns out to be damaged.
    fn search(
        &self,
        queries: &Embeddings,
        k: usize,
        filter: Option<Filter<'_>>,
    ) -> Result<Vec<Vec<(u32, f32)>>>;

    /// For each query the scores of the vectors of its list, in their order: those that a search gives them.
    ///
    /// # Errors
    /// [`Error::Vector`](crate::Error::Vector) as for [`search`](Self::search), and for a number that no vector has.
    fn scores(&self, queries: &Embeddings, lists: &[Vec<u32>]) -> Result<Vec<Vec<f32>>>;
}
