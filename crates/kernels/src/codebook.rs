//! The nearest of a few vectors, for many points: a step of k-means and of product quantisation.

use crate::{
    buffer::Lines,
    isa::{Isa, dispatch},
    scan::Storage,
    simd::{LANES, MOST_ROWS, Simd, microkernel::sum_f32},
};

/// A few vectors of equal length.
#[derive(Clone, Debug)]
pub struct Codebook {
    dim: usize,
    count: usize,
    /// In panels of 32, in the layout of tiles.
    panels: Lines,
    /// Turns the largest inner product into the smallest distance: minus half of each vector's square, and
    /// minus infinity for padding.
    bias: Vec<f32>,
}

impl Codebook {
    /// Vectors of `dim` values, in order.
    ///
    /// # Panics
    /// If they are not whole vectors, none, or more than 256.
    #[must_use]
    pub fn new(dim: usize, vectors: &[f32]) -> Self {
        let count = vectors.len() / dim;
        assert!(vectors.len().is_multiple_of(dim) && (1..=256).contains(&count));
        let size = Storage::F32.panel_bytes(dim);
        let mut bytes = vec![0; size];
        let mut panels = Lines::zeroed(count.next_multiple_of(LANES) * dim);
        for (vectors, panel) in vectors.chunks(dim * LANES).zip(panels.chunks_exact_mut(dim * LANES)) {
            Storage::F32.pack(dim, vectors, &mut bytes);
            for (out, value) in panel.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *out = f32::from_le_bytes(*value);
            }
        }
        let mut bias: Vec<f32> = vectors
            .chunks(dim)
            .map(|vector| -0.5 * vector.iter().map(|value| value * value).sum::<f32>())
            .collect();
        bias.resize(count.next_multiple_of(LANES), f32::NEG_INFINITY);
        Self { dim, count, panels, bias }
    }

    /// The nearest vector of each point (`dim` values, `stride` apart) by distance; ties go to the first.
    ///
    /// # Panics
    /// If the number of points differs from the length of `nearest`.
    pub fn assign(&self, isa: Isa, points: &[f32], stride: usize, nearest: &mut [u8]) {
        self.check(points, stride, nearest.len());
        #[inline(always)]
        fn body<S: Simd>(book: &Codebook, points: &[f32], stride: usize, nearest: &mut [u8]) {
            book.assign_body::<S>(points, stride, nearest);
        }
        let book = self;
        dispatch!(isa, body(book: &Codebook, points: &[f32], stride: usize, nearest: &mut [u8]));
    }

    /// The inner products of a point with all vectors.
    ///
    /// # Panics
    /// If the point has another width, or `products` another length than there are vectors.
    pub fn products(&self, isa: Isa, point: &[f32], products: &mut [f32]) {
        assert!(point.len() == self.dim && products.len() == self.count);
        #[inline(always)]
        fn body<S: Simd>(book: &Codebook, point: &[f32], products: &mut [f32]) {
            let mut sums = [[0f32; LANES]];
            for (panel, products) in
                book.panels.chunks_exact(book.dim * LANES).zip(products.chunks_mut(LANES))
            {
                // SAFETY: `dispatch` has checked that the machine has `S`; the point is one row of `dim` values, and a panel
                // is `dim` times 32.
                unsafe { sum_f32::<S>(1, book.dim, point.as_ptr(), (0, 1), panel.as_ptr(), &mut sums) };
                products.copy_from_slice(&sums[0][..products.len()]);
            }
        }
        let book = self;
        dispatch!(isa, body(book: &Codebook, point: &[f32], products: &mut [f32]));
    }

    fn check(&self, points: &[f32], stride: usize, count: usize) {
        assert!(stride >= self.dim);
        assert!(count == 0 || points.len() >= (count - 1) * stride + self.dim);
    }

    #[inline(always)]
    fn assign_body<S: Simd>(&self, points: &[f32], stride: usize, nearest: &mut [u8]) {
        let mut sums = [[0f32; LANES]; MOST_ROWS];
        for (at, nearest) in nearest.chunks_mut(S::ROWS).enumerate() {
            let first = points[at * S::ROWS * stride..].as_ptr();
            let mut best = [[f32::NEG_INFINITY; LANES]; MOST_ROWS];
            let mut of = [[0u32; LANES]; MOST_ROWS];
            let panels = self.panels.chunks_exact(self.dim * LANES).zip(self.bias.chunks_exact(LANES));
            for (number, (panel, bias)) in panels.enumerate() {
                // SAFETY: `dispatch` has checked that the machine has `S`; `assign` that as many points are there, each of
                // `dim` values; a panel is `dim` times 32.
                unsafe {
                    sum_f32::<S>(nearest.len(), self.dim, first, (stride, 1), panel.as_ptr(), &mut sums)
                };
                for ((best, of), sums) in best.iter_mut().zip(&mut of).zip(&sums).take(nearest.len()) {
                    for i in 0..LANES {
                        let score = sums[i] + bias[i];
                        let better = score > best[i];
                        best[i] = if better { score } else { best[i] };
                        of[i] = if better { number as u32 } else { of[i] };
                    }
                }
            }
            for ((nearest, best), of) in nearest.iter_mut().zip(&best).zip(&of) {
                let greatest = best.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let lanes = best.iter().zip(of).enumerate().filter(|(_, (score, _))| **score == greatest);
                let first = lanes.map(|(lane, (_, panel))| *panel as usize * LANES + lane).min();
                // A book has at most 256 vectors. There is always a nearest one if values are finite.
                *nearest = first.unwrap_or(0).min(self.count - 1) as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn the_nearest_is_that_of_the_least_distance() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (dim, count, stride, points) in [(1, 1, 1, 1), (4, 16, 9, 30), (8, 256, 8, 50), (5, 33, 20, 13)] {
            let vectors: Vec<f32> = (0..count * dim).map(|_| rng.random_range(-1.0..1.0)).collect();
            let values: Vec<f32> = (0..points * stride).map(|_| rng.random_range(-1.0..1.0)).collect();
            let book = Codebook::new(dim, &vectors);
            for isa in Isa::available() {
                let mut nearest = vec![9; points];
                book.assign(isa, &values, stride, &mut nearest);
                for (point, nearest) in values.chunks(stride).zip(&nearest) {
                    let distance = |at: usize| -> f32 {
                        let pairs = vectors[at * dim..][..dim].iter().zip(point);
                        pairs.map(|(a, b)| (a - b) * (a - b)).sum()
                    };
                    let least = (0..count).map(distance).fold(f32::INFINITY, f32::min);
                    assert!(distance(*nearest as usize) - least < 1e-5, "{isa:?} {dim} {count}");
                    let mut products = vec![0.0; count];
                    book.products(isa, &point[..dim], &mut products);
                    for (vector, product) in vectors.chunks(dim).zip(products) {
                        let expected: f32 = vector.iter().zip(point).map(|(a, b)| a * b).sum();
                        assert!((product - expected).abs() < 1e-5);
                    }
                }
            }
        }
    }

    #[test]
    fn of_equal_vectors_the_first_is_nearest() {
        let book = Codebook::new(2, &[[3.0, 0.0], [1.0, 1.0], [1.0, 1.0]].repeat(20).concat());
        for isa in Isa::available() {
            let mut nearest = [0; 1];
            book.assign(isa, &[1.0, 0.9], 2, &mut nearest);
            assert_eq!(nearest, [1]);
        }
    }
}
