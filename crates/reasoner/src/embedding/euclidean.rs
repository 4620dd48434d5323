//! Euclidean distances between many vectors, and their gradients, by matrix products.
//!
//! `|q - e|^2 = |q|^2 + |e|^2 - 2 q e`, and what the scores `-|q - e|` with gradients `g` give `q` is
//! `sum_e w (q - e) = q sum_e w - sum_e w e` with `w = g / score`.

use std::ops::Range;

use rayon::prelude::*;
use sporran_kernels::{Comparison, Isa};

/// Turns inner products, (queries, rows), into negative distances.
pub(super) fn scores(products: &mut [f32], queries: &[f32], rows: &[f32], width: usize) {
    let squares: Vec<f32> = rows.par_chunks_exact(width).map(square).collect();
    let work = products.par_chunks_exact_mut(squares.len()).zip(queries.par_chunks_exact(width));
    work.for_each(|(products, query)| {
        let own = square(query);
        for (product, square) in products.iter_mut().zip(&squares) {
            *product = distance(own, *square, *product);
        }
    });
}

/// Computes the distances for ranking. If a squared distance is small compared with the squared norms, it is
/// computed from differences, so that the relative error stays within a few millionths. The products are in
/// the columns `which` of rows of `stride` values.
pub(super) fn exact_scores(
    products: &mut [f32],
    (which, stride): (Range<usize>, usize),
    queries: &[f32],
    rows: &[f32],
    width: usize,
) {
    let isa = Isa::detected();
    let squares: Vec<f32> = rows.par_chunks_exact(width).map(square).collect();
    let work = products.par_chunks_exact_mut(stride).zip(queries.par_chunks_exact(width));
    work.for_each(|(products, query)| {
        let own = square(query);
        let products = &mut products[which.clone()];
        for ((product, square), row) in products.iter_mut().zip(&squares).zip(rows.chunks_exact(width)) {
            *product = distance(own, *square, *product);
            if *product * *product < NEAR * (own + square) {
                Comparison::L2.scores(isa, query, row, std::slice::from_mut(product));
            }
        }
    });
}

/// If a squared distance is below this share of the sum of the squared norms, their difference has lost
/// digits.
const NEAR: f32 = 0.1;

/// The negative distance of two vectors, from their squared norms and inner product.
fn distance(square: f32, other_square: f32, product: f32) -> f32 {
    -(square + other_square - 2.0 * product).max(0.0).sqrt()
}

/// Turns the gradients of scores into weights of differences. Equal vectors have no gradient.
pub(super) fn weights(to_scores: &mut [f32], scores: &[f32]) {
    for (to, score) in to_scores.iter_mut().zip(scores) {
        *to = if *score < 0.0 { *to / score } else { 0.0 };
    }
}

/// Turns weighted sums over the vectors that each point was scored against into gradients of the points.
/// `sums` are the sums of the weights.
pub(super) fn gradients(points: &[f32], sums: &[f32], width: usize, out: &mut [f32]) {
    for ((out, point), sum) in out.chunks_exact_mut(width).zip(points.chunks_exact(width)).zip(sums) {
        out.iter_mut().zip(point).for_each(|(out, value)| *out = sum * value - *out);
    }
}

fn square(values: &[f32]) -> f32 {
    let mut found = [0.0];
    Comparison::Dot.scores(Isa::detected(), values, values, &mut found);
    found[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ranked_by_keeps_its_digits() {
        const WIDTH: usize = 40;
        let query: Vec<f32> = (0..WIDTH).map(|at| 3.0 + (at as f32 * 0.7).sin()).collect();
        // Rows at growing distances from the query; the first row equals it.
        let by = |row: usize| if row == 0 { 0.0 } else { 1e-4 * 3f32.powi(row as i32) };
        let rows: Vec<f32> = (0..12).flat_map(|row| query.iter().map(move |value| value + by(row))).collect();
        let mut found = vec![7.0; 2 + 12];
        for (at, row) in rows.chunks_exact(WIDTH).enumerate() {
            found[2 + at] = query.iter().zip(row).map(|(a, b)| a * b).sum();
        }
        exact_scores(&mut found, (2..14, 14), &query, &rows, WIDTH);
        assert_eq!(found[..3], [7.0, 7.0, 0.0]);
        for (found, row) in found[2..].iter().zip(rows.chunks_exact(WIDTH)) {
            let squares = query.iter().zip(row).map(|(a, b)| f64::from(a - b).powi(2));
            let plain = -squares.sum::<f64>().sqrt();
            assert!((f64::from(*found) - plain).abs() <= 1e-5 * plain.abs(), "{found} {plain}");
        }
    }

    #[test]
    fn scores_and_gradients_are_those_of_the_differences() {
        const WIDTH: usize = 37;
        let values = |count: usize, seed: usize| -> Vec<f32> {
            (0..count * WIDTH).map(|at| ((at * 7 + seed) % 23) as f32 * 0.1 - 1.1).collect()
        };
        let (queries, mut rows) = (values(3, 1), values(5, 4));
        // The last row equals the first query.
        rows[4 * WIDTH..].copy_from_slice(&queries[..WIDTH]);
        let pairs = || (0..3).flat_map(|query| (0..5).map(move |row| (query, row)));
        let vector = |of: &[f32], at: usize| of[at * WIDTH..][..WIDTH].to_vec();
        let dot = |(query, row): (usize, usize)| -> f32 {
            vector(&queries, query).iter().zip(vector(&rows, row)).map(|(a, b)| a * b).sum()
        };
        let mut found: Vec<f32> = pairs().map(dot).collect();
        scores(&mut found, &queries, &rows, WIDTH);
        for ((query, row), found) in pairs().zip(&found) {
            let (a, b) = (vector(&queries, query), vector(&rows, row));
            let plain = -a.iter().zip(&b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt();
            assert!((f64::from(*found) - plain).abs() < 5e-3, "{query} {row}: {found} {plain}");
        }
        let exact: Vec<f32> =
            found.iter().map(|score| if score.abs() < 5e-3 { 0.0 } else { *score }).collect();
        let to_scores: Vec<f32> = (0..15).map(|at| (at % 4) as f32 - 1.5).collect();
        let mut weighted = to_scores.clone();
        weights(&mut weighted, &exact);
        let mut to_query = vec![0.0; WIDTH];
        for (weight, row) in weighted.iter().zip(rows.chunks_exact(WIDTH)) {
            to_query.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * value);
        }
        gradients(&queries[..WIDTH], &[weighted[..5].iter().sum()], WIDTH, &mut to_query);
        for (at, found) in to_query.iter().enumerate() {
            let plain: f32 =
                (0..4).map(|row| to_scores[row] / exact[row] * (queries[at] - rows[row * WIDTH + at])).sum();
            assert!((found - plain).abs() < 1e-4, "{at}: {found} {plain}");
        }
    }
}
