//! Scans against the definition.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::top::by_rank;

const STORAGES: [Storage; 3] = [Storage::F32, Storage::F16, Storage::Int8];

fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
}

fn packed(storage: Storage, dim: usize, rows: &[f32]) -> Vec<u8> {
    let size = storage.panel_bytes(dim);
    rows.chunks(dim * LANES)
        .flat_map(|rows| {
            let mut panel = vec![0xff; size];
            storage.pack(dim, rows, &mut panel);
            panel
        })
        .collect()
}

fn product(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Rows, width, queries: single ones, whole panels and tiles, and one more.
const SHAPES: [(usize, usize, usize); 7] =
    [(1, 1, 1), (31, 7, 2), (32, 64, 12), (33, 5, 13), (500, 48, 30), (2000, 130, 3), (70, 33, 210)];

#[test]
fn scores_are_inner_products_up_to_the_rounding_of_the_storage() {
    for isa in Isa::available() {
        for (rows, dim, count) in SHAPES {
            let (values, queries) = (random(rows * dim, 1), random(count * dim, 2));
            for storage in STORAGES {
                let bytes = packed(storage, dim, &values);
                let panels = Panels::new(storage, dim, rows, &bytes);
                let found = panels.search(isa, &queries, rows, None);
                assert_eq!(found.len(), count);
                for (query, found) in queries.chunks(dim).zip(found) {
                    // Every row is there once, in order.
                    assert!(found.is_sorted_by(|a, b| by_rank(a, b).is_lt()));
                    let mut ids: Vec<u32> = found.iter().map(|(id, _)| *id).collect();
                    ids.sort_unstable();
                    assert!(ids.into_iter().eq(0..rows as u32));
                    // Half a step of f16 is 2^-11 of a value; in int8 both factors are off by half a step of 1/127 at
                    // most: a random walk of that length for each value.
                    let root = (dim as f64).sqrt();
                    let bound = match storage {
                        Storage::F32 => 1e-5,
                        Storage::F16 => 1e-5 + 4.0 * root / 2048.0,
                        Storage::Int8 => 6.0 * root / 127.0 * 0.5,
                    };
                    for (id, score) in found {
                        let expected = product(query, &values[id as usize * dim..][..dim]);
                        assert!((f64::from(score) - expected).abs() < bound, "{isa:?} {storage:?} {dim}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_best_are_the_first_of_all_alone_and_among_others() {
    let (rows, dim, count) = (5000, 24, 40);
    let (values, queries) = (random(rows * dim, 3), random(count * dim, 4));
    for storage in STORAGES {
        let bytes = packed(storage, dim, &values);
        let panels = Panels::new(storage, dim, rows, &bytes);
        for isa in Isa::available() {
            let all = panels.search(isa, &queries, rows, None);
            let best = panels.search(isa, &queries, 10, None);
            for ((all, best), query) in all.iter().zip(&best).zip(queries.chunks(dim)) {
                assert_eq!(all[..10], best[..]);
                assert_eq!(panels.search(isa, query, 10, None)[0], *best);
                let (ids, scores): (Vec<u32>, Vec<f32>) = best.iter().copied().unzip();
                assert_eq!(panels.scores(isa, query, &[ids]), [scores]);
            }
        }
    }
}

#[test]
fn equal_scores_are_ordered_by_row_and_a_filter_holds() {
    // Rows repeat every 5: rows 2, 7, 12 .. are the best of the query.
    let (rows, dim) = (3000, 3);
    let values: Vec<f32> =
        (0..rows).flat_map(|row| [if row % 5 == 2 { 2.0 } else { -1.0 }, 0.5, 0.0]).collect();
    for storage in STORAGES {
        let bytes = packed(storage, dim, &values);
        let panels = Panels::new(storage, dim, rows, &bytes);
        for isa in Isa::available() {
            let ids = |filter: Option<Filter<'_>>, k| -> Vec<u32> {
                let found = panels.search(isa, &[1.0, 0.0, 0.0], k, filter);
                found[0].iter().map(|(id, _)| *id).collect()
            };
            assert!(ids(None, 50).into_iter().eq((0..50).map(|at| 5 * at + 2)));
            assert!(ids(Some(&|id| id % 2 == 1), 50).into_iter().eq((0..50).map(|at| 10 * at + 7)));
            assert_eq!(ids(Some(&|id| id == 1234), 50), [1234]);
            assert!(ids(None, 0).is_empty());
        }
    }
}

#[test]
fn rows_come_back_up_to_the_rounding_of_the_storage() {
    let (rows, dim) = (70, 9);
    let values = random(rows * dim, 5);
    for (storage, tolerance) in STORAGES.into_iter().zip([0.0, 1.0 / 2048.0, 0.5 / 127.0 + 1e-6]) {
        let bytes = packed(storage, dim, &values);
        let panels = Panels::new(storage, dim, rows, &bytes);
        for at in [0, 31, 32, 69] {
            let mut out = vec![0.0; dim];
            panels.row(at, &mut out);
            assert!(out.iter().zip(&values[at * dim..]).all(|(a, b)| (a - b).abs() <= tolerance));
        }
    }
}

#[test]
fn no_rows_and_no_queries_are_nothing() {
    let panels = Panels::new(Storage::Int8, 4, 0, &[]);
    assert_eq!(panels.search(Isa::detected(), &[1.0; 8], 3, None), [vec![], vec![]]);
    assert!(panels.search(Isa::detected(), &[], 3, None).is_empty());
}
