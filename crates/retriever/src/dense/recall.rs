//! The recall of an approximate index.

use rand::{SeedableRng, seq::index};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use sporran_kernels::{Isa, Panels, Storage, by_rank};

use super::{Embeddings, VectorIndex, rows::Rows};
use crate::Result;

/// The recall of an approximate index compared with exact search, measured when it is built. Queries are
/// indexed vectors, which do not count as results of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Recall {
    /// The number of queries.
    pub queries: u32,
    /// The number of results a query.
    pub k: u32,
    /// The share of exact results that was found.
    pub recall: f64,
}

/// Sampled queries with their exact results.
pub(crate) struct Sample {
    ids: Vec<u32>,
    queries: Embeddings,
    nearest: Vec<Vec<(u32, f32)>>,
}

const QUERIES: usize = 500;
const K: usize = 10;
/// The number of rows packed at once for the exact search.
const AT_ONCE: usize = 16_384;

impl Sample {
    /// Samples vectors and computes their exact results.
    pub(crate) fn draw(rows: &Rows, seed: u64) -> Result<Self> {
        let (dim, count) = (rows.dim(), rows.count());
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut ids: Vec<u32> =
            index::sample(&mut rng, count, QUERIES.min(count)).into_iter().map(|id| id as u32).collect();
        ids.sort_unstable();
        let mut values = Vec::new();
        ids.iter().for_each(|id| rows.read(*id as usize, 1, &mut values));
        let queries = Embeddings::new(dim, values)?;
        let mut nearest = vec![Vec::new(); queries.len()];
        let size = Storage::F32.panel_bytes(dim);
        let (mut values, mut bytes) = (Vec::new(), Vec::new());
        for first in (0..count).step_by(AT_ONCE) {
            let some = AT_ONCE.min(count - first);
            values.clear();
            rows.read(first, some, &mut values);
            bytes.resize(some.div_ceil(Panels::ROWS) * size, 0);
            for (panel, rows) in bytes.chunks_mut(size).zip(values.chunks(Panels::ROWS * dim)) {
                Storage::F32.pack(dim, rows, panel);
            }
            let panels = Panels::new(Storage::F32, dim, some, &bytes);
            let found = panels.search(Isa::detected(), queries.values(), K + 1, None);
            for (nearest, found) in nearest.iter_mut().zip(found) {
                nearest.extend(found.into_iter().map(|(id, score)| (id + first as u32, score)));
                nearest.sort_unstable_by(by_rank);
                nearest.truncate(K + 1);
            }
        }
        Ok(Self { ids, queries, nearest })
    }

    /// Measures the recall of an index.
    pub(crate) fn recall(&self, index: &dyn VectorIndex) -> Result<Recall> {
        let found = index.search(&self.queries, K + 1, None)?;
        let (mut all, mut there) = (0, 0);
        for ((own, nearest), found) in self.ids.iter().zip(&self.nearest).zip(&found) {
            let nearest: Vec<u32> =
                nearest.iter().map(|(id, _)| *id).filter(|id| id != own).take(K).collect();
            all += nearest.len();
            there += nearest.iter().filter(|id| found.iter().any(|(found, _)| found == *id)).count();
        }
        let recall = if all == 0 { 1.0 } else { there as f64 / all as f64 };
        Ok(Recall { queries: self.ids.len() as u32, k: K as u32, recall })
    }
}
