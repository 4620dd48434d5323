//! Inner products with rows that are accessed by index.

use half::f16;

use crate::{
    isa::{Isa, dispatch},
    simd::{LANES, Simd},
};

/// Rows of equal length in f32 or f16, for access to individual rows.
#[derive(Clone, Copy, Debug)]
pub struct Vectors<'a> {
    dim: usize,
    half: bool,
    bytes: &'a [u8],
}

impl<'a> Vectors<'a> {
    /// Rows of `dim` values in 32 bits, or in 16 if `half`.
    ///
    /// # Panics
    /// If the bytes are not whole rows.
    #[must_use]
    pub fn new(dim: usize, half: bool, bytes: &'a [u8]) -> Self {
        let size = dim * if half { 2 } else { 4 };
        assert!(size > 0 && bytes.len().is_multiple_of(size), "rows of {size} bytes");
        Self { dim, half, bytes }
    }

    /// The width of a row.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.bytes.len() / self.size()
    }

    /// Copies row `at`.
    ///
    /// # Panics
    /// If there is no such row, or `out` has another length.
    pub fn row(&self, at: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.dim);
        let bytes = self.bytes_of(at);
        if self.half {
            let halves = bytes.as_chunks::<2>().0;
            out.iter_mut().zip(halves).for_each(|(out, half)| *out = f16::from_le_bytes(*half).to_f32());
        } else {
            let values = bytes.as_chunks::<4>().0;
            out.iter_mut().zip(values).for_each(|(out, value)| *out = f32::from_le_bytes(*value));
        }
    }

    /// Replaces `scores` by the inner products of `query` with the rows `ids`, in order.
    ///
    /// # Panics
    /// If the query has another length than a row, or there is no such row.
    pub fn scores(&self, isa: Isa, query: &[f32], ids: &[u32], scores: &mut Vec<f32>) {
        #[inline(always)]
        fn body<S: Simd>(rows: &Vectors<'_>, query: &[f32], ids: &[u32], scores: &mut Vec<f32>) {
            rows.scores_body::<S>(query, ids, scores);
        }
        let rows = self;
        dispatch!(isa, body(rows: &Vectors<'_>, query: &[f32], ids: &[u32], scores: &mut Vec<f32>));
    }

    /// Whether one of the inner products of `query` with the rows `ids` exceeds its bound. Stops at the first
    /// that does.
    ///
    /// # Panics
    /// As for [`scores`](Self::scores).
    #[must_use]
    pub fn any_above(&self, isa: Isa, query: &[f32], ids: &[u32], bounds: &[f32]) -> bool {
        #[inline(always)]
        fn body<S: Simd>(rows: &Vectors<'_>, query: &[f32], ids: &[u32], bounds: &[f32]) -> bool {
            for (id, bound) in ids.iter().zip(bounds) {
                // SAFETY: `dispatch` has checked that the machine has `S`, and the query's width has been.
                if unsafe { rows.score::<S>(query, *id) } > *bound {
                    return true;
                }
            }
            false
        }
        assert_eq!(query.len(), self.dim);
        let rows = self;
        dispatch!(isa, body(rows: &Vectors<'_>, query: &[f32], ids: &[u32], bounds: &[f32]) -> bool)
    }

    fn size(&self) -> usize {
        self.dim * if self.half { 2 } else { 4 }
    }

    #[inline(always)]
    fn bytes_of(&self, at: usize) -> &'a [u8] {
        let size = self.size();
        &self.bytes[at * size..][..size]
    }

    #[inline(always)]
    fn scores_body<S: Simd>(&self, query: &[f32], ids: &[u32], scores: &mut Vec<f32>) {
        assert_eq!(query.len(), self.dim);
        // Rows are at random addresses, so later ones are prefetched.
        const AHEAD: usize = 3;
        scores.clear();
        for &id in ids.iter().take(AHEAD) {
            S::prefetch(self.bytes_of(id as usize));
        }
        for (at, &id) in ids.iter().enumerate() {
            if let Some(&next) = ids.get(at + AHEAD) {
                S::prefetch(self.bytes_of(next as usize));
            }
            // SAFETY: `dispatch` has checked that the machine has `S`, and the query's width has been.
            scores.push(unsafe { self.score::<S>(query, id) });
        }
    }

    /// The inner product with row `id`.
    ///
    /// # Safety
    /// The machine must have `S`, and the query must be as wide as a row.
    #[inline(always)]
    unsafe fn score<S: Simd>(&self, query: &[f32], id: u32) -> f32 {
        let row = self.bytes_of(id as usize).as_ptr();
        // SAFETY: by the contract; a row has as many values of its storage as the query has.
        unsafe { if self.half { product::<S, true>(query, row) } else { product::<S, false>(query, row) } }
    }
}

/// Thirty-two values of a row, from value `at` on.
///
/// # Safety
/// The machine must have `S`, and the row must have those values.
#[inline(always)]
unsafe fn lanes<S: Simd, const HALF: bool>(row: *const u8, at: usize) -> S::Floats {
    // SAFETY: by the contract.
    unsafe {
        if HALF {
            S::load_halves(row.cast::<u16>().add(at))
        } else {
            S::load_floats(row.cast::<f32>().add(at))
        }
    }
}

/// Value `at` of a row.
///
/// # Safety
/// The row must have that value.
#[inline(always)]
unsafe fn value<const HALF: bool>(row: *const u8, at: usize) -> f32 {
    // SAFETY: by the contract; rows in memory need not be aligned.
    unsafe {
        if HALF {
            f16::from_bits(row.cast::<u16>().add(at).read_unaligned()).to_f32()
        } else {
            row.cast::<f32>().add(at).read_unaligned()
        }
    }
}

/// The inner product of `a` with as many values of `row`.
///
/// # Safety
/// The machine must have `S`, and the row must have as many values as `a` has.
#[inline(always)]
unsafe fn product<S: Simd, const HALF: bool>(a: &[f32], row: *const u8) -> f32 {
    let whole = a.len() / LANES;
    let mut out = [0f32; LANES];
    // SAFETY: every place is below the length of `a`, which is the row's by the contract.
    unsafe {
        // Two sums, because a single one would wait for each addition.
        let mut sums = [S::zero_floats(); 2];
        for at in 0..whole / 2 {
            for (i, sum) in sums.iter_mut().enumerate() {
                let from = (2 * at + i) * LANES;
                *sum =
                    S::add_products(*sum, S::load_floats(a.as_ptr().add(from)), lanes::<S, HALF>(row, from));
            }
        }
        if whole % 2 == 1 {
            let from = (whole - 1) * LANES;
            sums[0] =
                S::add_products(sums[0], S::load_floats(a.as_ptr().add(from)), lanes::<S, HALF>(row, from));
        }
        let mut second = [0f32; LANES];
        S::store_floats(out.as_mut_ptr(), sums[0]);
        S::store_floats(second.as_mut_ptr(), sums[1]);
        for (out, second) in out.iter_mut().zip(second) {
            *out += second;
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            out[i] += out[i + width];
        }
        width /= 2;
    }
    let mut rest = 0f32;
    for (at, a) in a.iter().enumerate().skip(whole * LANES) {
        // SAFETY: as above.
        rest = S::mul_add(*a, unsafe { value::<HALF>(row, at) }, rest);
    }
    // -0 becomes 0, as in a scan.
    out[0] + rest + 0.0
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn scores_are_inner_products() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for dim in [1, 5, 31, 32, 33, 64, 96, 129, 384] {
            let values: Vec<f32> = (0..20 * dim).map(|_| rng.random_range(-1.0..1.0)).collect();
            let query: Vec<f32> = (0..dim).map(|_| rng.random_range(-1.0..1.0)).collect();
            let full: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let half: Vec<u8> = values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect();
            let ids = [3, 19, 0, 7, 7, 12];
            for (half, bytes) in [(false, &full), (true, &half)] {
                let rows = Vectors::new(dim, half, bytes);
                assert_eq!((rows.dim(), rows.count()), (dim, 20));
                for isa in Isa::available() {
                    let mut scores = vec![9.0];
                    rows.scores(isa, &query, &ids, &mut scores);
                    assert_eq!(scores.len(), ids.len());
                    assert!(!rows.any_above(isa, &query, &ids, &scores));
                    let lower: Vec<f32> = scores.iter().map(|score| score - 1e-3).collect();
                    assert!(rows.any_above(isa, &query, &ids[5..], &lower[5..]));
                    for (&id, score) in ids.iter().zip(scores) {
                        let mut row = vec![0.0; dim];
                        rows.row(id as usize, &mut row);
                        if !half {
                            assert_eq!(row, values[id as usize * dim..][..dim]);
                        }
                        let expected: f64 =
                            row.iter().zip(&query).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                        assert!((f64::from(score) - expected).abs() < 1e-5, "{isa:?} {dim} {half}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_machine_widens_every_half_to_the_same_value() {
        // All values except NaNs, whose payloads are not guaranteed.
        let halves: Vec<u16> = (0..=u16::MAX).filter(|bits| !f16::from_bits(*bits).is_nan()).collect();
        for isa in Isa::available() {
            #[inline(always)]
            fn body<S: Simd>(halves: &[u16; LANES], out: &mut [f32; LANES]) {
                // SAFETY: `dispatch` has checked that the machine has `S`; both arrays have 32 values.
                unsafe { S::store_floats(out.as_mut_ptr(), S::load_halves(halves.as_ptr())) }
            }
            for halves in halves.as_chunks::<LANES>().0 {
                let mut out = [0.0; LANES];
                let to = &mut out;
                dispatch!(isa, body(halves: &[u16; LANES], to: &mut [f32; LANES]));
                assert_eq!(out.map(f32::to_bits), halves.map(|half| f16::from_bits(half).to_f32().to_bits()));
            }
        }
    }
}
