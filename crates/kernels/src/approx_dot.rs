//! Approximate inner products of rows with each other, with a quarter of the memory.

use rayon::prelude::*;

use crate::{
    isa::{Isa, dispatch},
    math::ROUND,
    quantise::scale_of,
    simd::Simd,
    vectors::Vectors,
};

/// Rows in 8 bits with one scale each.
#[derive(Clone, Debug)]
pub struct RoughRows {
    dim: usize,
    values: Vec<i8>,
    scales: Vec<f32>,
}

impl RoughRows {
    /// Quantises rows.
    #[must_use]
    pub fn new(rows: Vectors<'_>) -> Self {
        let dim = rows.dim();
        let mut values = vec![0; rows.count() * dim];
        let round = |row: &mut Vec<f32>, (at, out): (usize, &mut [i8])| {
            rows.row(at, row);
            let scale = scale_of(row);
            let inverse = 1.0 / scale;
            for (out, value) in out.iter_mut().zip(&*row) {
                *out = (value * inverse + ROUND).to_bits() as i8;
            }
            scale
        };
        let scales = values.par_chunks_mut(dim).enumerate().map_init(|| vec![0.0; dim], round).collect();
        Self { dim, values, scales }
    }

    /// Replaces `scores` by the inner products of row `of` with the rows `ids`, in order.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn scores(&self, isa: Isa, of: u32, ids: &[u32], scores: &mut Vec<f32>) {
        #[inline(always)]
        fn body<S: Simd>(rows: &RoughRows, of: u32, ids: &[u32], scores: &mut Vec<f32>) {
            // Rows are at random addresses, so later ones are prefetched.
            const AHEAD: usize = 4;
            let (own, scale) = (rows.row(of), rows.scales[of as usize]);
            ids.iter().take(AHEAD).for_each(|&id| S::prefetch(rows.row(id)));
            scores.clear();
            for (at, &id) in ids.iter().enumerate() {
                if let Some(&next) = ids.get(at + AHEAD) {
                    S::prefetch(rows.row(next));
                }
                let sum: i32 = own.iter().zip(rows.row(id)).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
                scores.push(sum as f32 * (scale * rows.scales[id as usize]));
            }
        }
        let rows = self;
        dispatch!(isa, body(rows: &RoughRows, of: u32, ids: &[u32], scores: &mut Vec<f32>));
    }

    #[inline(always)]
    fn row(&self, at: u32) -> &[i8] {
        &self.values[at as usize * self.dim..][..self.dim]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rough_scores_are_near_the_exact_ones_and_the_same_on_every_instruction_set() {
        for dim in [1, 5, 64, 100, 384] {
            let values: Vec<f32> =
                (0..9 * dim).map(|at| (at as f32 * 0.7).sin() * (1.0 + at as f32)).collect();
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let exact = Vectors::new(dim, false, &bytes);
            let rough = RoughRows::new(exact);
            let ids = [3, 8, 0, 2, 2, 5, 7];
            let own = &values[2 * dim..3 * dim];
            let (mut expected, mut first) = (Vec::new(), Vec::new());
            exact.scores(Isa::detected(), own, &ids, &mut expected);
            rough.scores(Isa::Portable, 2, &ids, &mut first);
            let length = |at: usize| values[at * dim..][..dim].iter().map(|x| x * x).sum::<f32>().sqrt();
            for ((expected, found), id) in expected.iter().zip(&first).zip(ids) {
                let bound = 0.01 * length(2) * length(id as usize);
                assert!((expected - found).abs() <= bound, "{dim} {id}: {expected} {found}");
            }
            for isa in Isa::available() {
                let mut scores = vec![9.0];
                rough.scores(isa, 2, &ids, &mut scores);
                assert_eq!(scores, first);
            }
        }
    }
}
