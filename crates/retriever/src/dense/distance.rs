//! Exact search by distances. The score of a vector is its negative distance from the query.

use rayon::prelude::*;
use sporran_kernels::{Filter, Top};

use super::{
    Embeddings, FlatOptions, IndexOptions, Similarity, Storage, VectorIndex, VectorStorage,
    flat::{VECTORS, write_vectors},
    header::Header,
    rows::Rows,
    vector_index::listed_scores,
};
use crate::{
    Error, Result,
    layout::{Files, Folder, Mapped, Section},
};

/// The vectors of one unit of work.
const BLOCK: usize = 4096;
/// Independent partial sums, so that the compiler can use wide instructions.
const LANES: usize = 16;

/// An index that compares every vector by a distance.
pub(crate) struct Distances {
    similarity: Similarity,
    dim: usize,
    count: usize,
    vectors: Mapped,
}

/// Checks that an index can compare by distances: only a flat one in `f32` can.
///
/// # Errors
/// [`Error::Option`].
pub(crate) fn check(options: &IndexOptions, similarity: Similarity) -> Result<()> {
    match options {
        _ if !similarity.is_distance() => Ok(()),
        // Only 8 bits are rescored.
        IndexOptions::Flat(FlatOptions { storage: Storage::F32, .. }) => Ok(()),
        other => Err(Error::Option {
            option: "index",
            expected: "`flat` with `f32`, the only index for `euclidean` and `manhattan`",
            found: format!("{} for `{}`", other.describe(), similarity.name()),
        }),
    }
}

/// Writes the index file.
pub(crate) fn write(rows: &Rows, folder: &Folder) -> Result<Vec<Section>> {
    Ok(vec![write_vectors(rows, VectorStorage::F32, folder, VECTORS)?])
}

impl Distances {
    /// Opens the index file.
    pub(crate) fn open(files: &mut Files, header: &Header) -> Result<Self> {
        let Header { similarity, dim, passages, .. } = *header;
        let (count, vectors) = (passages as usize, files.take(VECTORS)?);
        vectors.expect(count * dim * VectorStorage::F32.bytes())?;
        Ok(Self { similarity, dim, count, vectors })
    }

    /// The score of a vector.
    fn score(&self, query: &[f32], id: usize) -> f32 {
        let row = &self.vectors[4 * self.dim * id..][..4 * self.dim];
        let row = row.as_chunks::<4>().0;
        if self.similarity == Similarity::Manhattan {
            -sum(query, row, f32::abs)
        } else {
            -sum(query, row, |difference| difference * difference).sqrt()
        }
    }
}

/// The sum of a function over the differences of two vectors; the second one is in bytes.
fn sum(query: &[f32], row: &[[u8; 4]], of: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0.0f32; LANES];
    for (query, row) in query.chunks(LANES).zip(row.chunks(LANES)) {
        for ((sum, query), value) in sums.iter_mut().zip(query).zip(row) {
            *sum += of(query - f32::from_le_bytes(*value));
        }
    }
    sums.iter().sum()
}

impl VectorIndex for Distances {
    fn dim(&self) -> usize {
        self.dim
    }

    fn len(&self) -> usize {
        self.count
    }

    fn search(
        &self,
        queries: &Embeddings,
        k: usize,
        filter: Option<Filter<'_>>,
    ) -> Result<Vec<Vec<(u32, f32)>>> {
        let one = |query: &[f32]| {
            let best = |block: usize| {
                let mut top = Top::new(k);
                for id in block * BLOCK..self.count.min((block + 1) * BLOCK) {
                    if filter.is_none_or(|filter| filter(id as u32)) {
                        let score = self.score(query, id);
                        if score > top.threshold() {
                            top.offer(id as u32, score);
                        }
                    }
                }
                top
            };
            let parts: Vec<Top> = (0..self.count.div_ceil(BLOCK)).into_par_iter().map(best).collect();
            Top::merged(parts, k)
        };
        Ok(queries.rows().map(one).collect())
    }

    fn scores(&self, queries: &Embeddings, lists: &[Vec<u32>]) -> Result<Vec<Vec<f32>>> {
        Ok(listed_scores(queries, lists, |query| move |id| self.score(query, id as usize)))
    }
}
