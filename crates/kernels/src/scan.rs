//! Exact search: the rows with the largest inner products with a query.
//!
//! Rows are in panels of 32: their first values, then their second ones, and so on. A product with a tile of
//! queries reads them in this order. The scores of a tile stay in the cache; only those above a query's worst
//! kept result are kept.

#[cfg(test)]
mod tests;

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use half::f16;
use rayon::prelude::*;

use crate::{
    buffer::Lines,
    isa::{Isa, dispatch},
    matrix::Input,
    quantise::{Scratch, quantise, quantise_output},
    rows::Rows,
    simd::{
        LANES, MOST_ROWS, STRIP, Simd,
        microkernel::{strips, sum_f16, sum_f32, sum_i8},
    },
    thread_pool::ThreadPool,
    top::Top,
};

// Panels are mapped from little-endian files directly.
const _: () =
    assert!(cfg!(target_endian = "little"), "rows are kept in the order of bytes of small-endian machines");

/// Selects the rows that may be found.
pub type Filter<'a> = &'a (dyn Fn(u32) -> bool + Sync);

/// The number of queries in a pass over the rows: a worker's results for them take a few megabytes.
const PASS: usize = 1024;

/// Bytes of rows in a work unit: they stay in the L2 cache for all blocks of queries.
const BLOCK: usize = 512 << 10;

/// The storage type of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Unchanged.
    F32,
    /// In 16 bits; sums are in f32.
    F16,
    /// In 8 bits with one scale a row. A query is quantised to 8 bits too, and the sums are exact.
    Int8,
}

impl Storage {
    /// The length of a panel of rows of `dim` values. In int8 it starts with 32 scales (f32) and 32 offsets
    /// (128 times the sum of a row's bytes, i32), and a row's values are padded with zeros to a multiple of
    /// 4.
    #[must_use]
    pub fn panel_bytes(self, dim: usize) -> usize {
        match self {
            Self::F32 => 4 * dim * LANES,
            Self::F16 => 2 * dim * LANES,
            Self::Int8 => HEAD + dim.next_multiple_of(4) * LANES,
        }
    }

    /// Writes a panel of at most 32 rows; missing ones are zeros.
    ///
    /// # Panics
    /// If `rows` are not up to 32 whole rows of `dim` values, or `panel` has another length than a panel.
    pub fn pack(self, dim: usize, rows: &[f32], panel: &mut [u8]) {
        assert!(dim > 0 && rows.len().is_multiple_of(dim) && rows.len() <= dim * LANES);
        assert_eq!(panel.len(), self.panel_bytes(dim));
        panel.fill(0);
        let rows = rows.chunks_exact(dim).enumerate();
        match self {
            Self::F32 => {
                for (lane, row) in rows {
                    for (values, value) in panel.chunks_exact_mut(4 * LANES).zip(row) {
                        values[4 * lane..][..4].copy_from_slice(&value.to_le_bytes());
                    }
                }
            }
            Self::F16 => {
                for (lane, row) in rows {
                    for (values, value) in panel.chunks_exact_mut(2 * LANES).zip(row) {
                        values[2 * lane..][..2].copy_from_slice(&f16::from_f32(*value).to_le_bytes());
                    }
                }
            }
            Self::Int8 => {
                let mut bytes = vec![0i8; panel.len() - HEAD];
                for (lane, row) in rows {
                    let (scale, offset) = quantise_output(row, lane, &mut bytes);
                    panel[4 * lane..][..4].copy_from_slice(&scale.to_le_bytes());
                    panel[4 * (LANES + lane)..][..4].copy_from_slice(&offset.to_le_bytes());
                }
                for (to, byte) in panel[HEAD..].iter_mut().zip(bytes) {
                    *to = byte as u8;
                }
            }
        }
    }
}

/// Scales and offsets before the bytes of a panel in int8.
const HEAD: usize = 8 * LANES;

/// Rows in panels.
#[derive(Clone, Copy, Debug)]
pub struct Panels<'a> {
    storage: Storage,
    dim: usize,
    rows: usize,
    bytes: &'a [u8],
}

impl<'a> Panels<'a> {
    /// Rows of a panel.
    pub const ROWS: usize = LANES;

    /// `rows` rows of `dim` values as [`Storage::pack`] writes them, panel by panel.
    ///
    /// # Panics
    /// If the number of bytes is wrong, or ids cannot number the rows.
    #[must_use]
    pub fn new(storage: Storage, dim: usize, rows: usize, bytes: &'a [u8]) -> Self {
        assert!(dim > 0 && u32::try_from(rows).is_ok());
        assert_eq!(bytes.len(), rows.div_ceil(LANES) * storage.panel_bytes(dim));
        Self { storage, dim, rows, bytes }
    }

    /// Copies row `at` with the precision of its storage.
    ///
    /// # Panics
    /// If there is no such row, or `out` has another length.
    pub fn row(&self, at: usize, out: &mut [f32]) {
        assert!(at < self.rows && out.len() == self.dim);
        let (panel, lane) = (self.panel(at / LANES), at % LANES);
        match self.storage {
            Storage::F32 => {
                for (out, values) in out.iter_mut().zip(panel.as_chunks::<4>().0.chunks_exact(LANES)) {
                    *out = f32::from_le_bytes(values[lane]);
                }
            }
            Storage::F16 => {
                for (out, values) in out.iter_mut().zip(panel.as_chunks::<2>().0.chunks_exact(LANES)) {
                    *out = f16::from_le_bytes(values[lane]).to_f32();
                }
            }
            Storage::Int8 => {
                let (head, bytes) = panel.split_at(HEAD);
                let scale = f32::from_le_bytes(head.as_chunks::<4>().0[lane]);
                for (i, out) in out.iter_mut().enumerate() {
                    *out = f32::from(bytes[i / 4 * 4 * LANES + lane * 4 + i % 4] as i8) * scale;
                }
            }
        }
    }

    /// For each query (as long as a row), the `k` rows with the largest inner products, as row and score:
    /// best first, ties by ascending row. Fewer if fewer rows pass `filter`.
    ///
    /// Squares of all rows' and queries' values must have finite sums, so that no score is NaN.
    ///
    /// # Panics
    /// If `queries` are not whole vectors.
    #[must_use]
    pub fn search(
        &self,
        isa: Isa,
        queries: &[f32],
        k: usize,
        filter: Option<Filter<'_>>,
    ) -> Vec<Vec<(u32, f32)>> {
        assert_eq!(queries.len() % self.dim, 0, "queries of {} values", self.dim);
        let passes = queries.chunks(PASS * self.dim);
        passes.flat_map(|queries| self.pass(isa, queries, k.min(self.rows), filter)).collect()
    }

    fn panel(&self, at: usize) -> &'a [u8] {
        let size = self.storage.panel_bytes(self.dim);
        &self.bytes[at * size..][..size]
    }

    fn pass(&self, isa: Isa, queries: &[f32], k: usize, filter: Option<Filter<'_>>) -> Vec<Vec<(u32, f32)>> {
        let count = queries.len() / self.dim;
        let (rows, mut scratch) = (self.spaced(queries), Scratch::default());
        let input = self.input(isa, &rows, &mut scratch);
        let panels = self.rows.div_ceil(LANES);
        let block = (BLOCK / self.storage.panel_bytes(self.dim)).max(1);
        best(panels.div_ceil(block), count, k, &|at, tops| {
            self.scan(isa, input, at * block..((at + 1) * block).min(panels), filter, tops);
        })
    }

    /// Queries in rows with gaps, the layout of tiles.
    fn spaced(&self, queries: &[f32]) -> Rows {
        let mut rows = Rows::new(queries.len() / self.dim, self.dim);
        let queries = queries.chunks_exact(self.dim).enumerate();
        queries.for_each(|(at, query)| rows.row_mut(at).copy_from_slice(query));
        rows
    }

    /// Queries in the number format of the rows.
    fn input<'b>(&self, isa: Isa, rows: &'b Rows, scratch: &'b mut Scratch) -> Input<'b> {
        match self.storage {
            Storage::F32 | Storage::F16 => Input::F32 { values: rows.values(), stride: rows.stride() },
            Storage::Int8 => {
                quantise(isa, ThreadPool::global(), rows.values(), rows.stride(), self.dim, scratch)
            }
        }
    }

    /// For each query the scores of the rows in its list, in order. They equal those of a search.
    ///
    /// # Panics
    /// If `queries` are not whole vectors, their number differs from that of lists, or there is no such row.
    #[must_use]
    pub fn scores(&self, isa: Isa, queries: &[f32], lists: &[Vec<u32>]) -> Vec<Vec<f32>> {
        #[inline(always)]
        fn body<S: Simd>(
            rows: &Panels<'_>,
            queries: Input<'_>,
            at: usize,
            ids: &[u32],
            scores: &mut Vec<f32>,
        ) {
            let (mut sums, mut ints) = ([[0f32; LANES]], [[0i32; LANES]]);
            for &id in ids {
                let (panel, lane) = (id as usize / LANES, id as usize % LANES);
                rows.strip::<S>(queries, at..at + 1, panel, &[], (&mut sums, &mut ints));
                scores.push(sums[0][lane]);
            }
        }
        assert_eq!(queries.len(), lists.len() * self.dim);
        assert!(lists.iter().flatten().all(|id| (*id as usize) < self.rows));
        let (spaced, mut scratch) = (self.spaced(queries), Scratch::default());
        let queries = self.input(isa, &spaced, &mut scratch);
        let one = |(at, ids): (usize, &Vec<u32>)| {
            let mut found = Vec::with_capacity(ids.len());
            let (rows, ids, scores) = (self, &ids[..], &mut found);
            dispatch!(isa, body(
                rows: &Panels<'_>,
                queries: Input<'_>,
                at: usize,
                ids: &[u32],
                scores: &mut Vec<f32>,
            ));
            found
        };
        lists.par_iter().enumerate().map(one).collect()
    }

    /// Offers the rows of `panels` to every query.
    fn scan(
        &self,
        isa: Isa,
        queries: Input<'_>,
        panels: Range<usize>,
        filter: Option<Filter<'_>>,
        tops: &mut [Top],
    ) {
        #[inline(always)]
        fn body<S: Simd>(
            rows: &Panels<'_>,
            cached_values: usize,
            queries: Input<'_>,
            panels: Range<usize>,
            filter: Option<Filter<'_>>,
            tops: &mut [Top],
        ) {
            rows.scan_body::<S>(cached_values, queries, panels, filter, tops);
        }
        let (rows, cached_values) = (self, isa.cached_values());
        dispatch!(isa, body(
            rows: &Panels<'_>,
            cached_values: usize,
            queries: Input<'_>,
            panels: Range<usize>,
            filter: Option<Filter<'_>>,
            tops: &mut [Top],
        ));
    }

    #[inline(always)]
    fn scan_body<S: Simd>(
        &self,
        cached_values: usize,
        queries: Input<'_>,
        panels: Range<usize>,
        filter: Option<Filter<'_>>,
        tops: &mut [Top],
    ) {
        // The number of queries that stay in the L2 cache while panels are streamed.
        let together =
            (cached_values / self.dim).clamp(2 * MOST_ROWS, 16 * MOST_ROWS) / MOST_ROWS * MOST_ROWS;
        let (mut sums, mut ints) = ([[0f32; LANES]; STRIP], [[0i32; LANES]; STRIP]);
        let mut wide = Lines::default();
        for first in (0..tops.len()).step_by(together) {
            let count = together.min(tops.len() - first);
            for panel in panels.clone() {
                let rows = panel * LANES;
                let there = u32::MAX >> (LANES - (self.rows - rows).min(LANES));
                // Several tiles share values that were widened once.
                let widened = self.storage == Storage::F16 && count > 2 * S::ROWS;
                if widened {
                    wide.resize(self.dim * LANES);
                    widen::<S>(self.panel(panel), &mut wide);
                }
                for strip in strips::<S>(first..first + count) {
                    let wide = if widened { &wide[..] } else { &[] };
                    self.strip::<S>(queries, strip.clone(), panel, wide, (&mut sums, &mut ints));
                    for (top, sums) in tops[strip].iter_mut().zip(&sums) {
                        let threshold = top.threshold();
                        let mut above = 0u32;
                        for (lane, sum) in sums.iter().enumerate() {
                            above |= u32::from(*sum > threshold) << lane;
                        }
                        if above & there != 0 {
                            offer(top, above & there, rows, sums, filter);
                        }
                    }
                }
            }
        }
    }

    /// The scores of a strip: `sums[i]` are those of query `of.start + i` with the rows of a panel. `wide`
    /// has the values of an f16 panel that was widened before, or is empty; `ints` is a buffer for int8 sums.
    #[inline(always)]
    fn strip<S: Simd>(
        &self,
        queries: Input<'_>,
        of: Range<usize>,
        panel: usize,
        wide: &[f32],
        (sums, ints): (&mut [[f32; LANES]], &mut [[i32; LANES]]),
    ) {
        let dim = self.dim;
        let bytes = self.panel(panel);
        let height = of.len();
        match queries {
            Input::F32 { values, stride } => {
                let a = &values[of.start * stride..(of.end - 1) * stride + dim];
                if wide.len() == dim * LANES {
                    // SAFETY: as below, for a panel that was widened to f32.
                    unsafe { sum_f32::<S>(height, dim, a.as_ptr(), (stride, 1), wide.as_ptr(), sums) };
                } else if self.storage == Storage::F32 {
                    // SAFETY: `dispatch` has checked that the machine has `S`; the queries are `height` rows, and a panel
                    // in f32 is `dim` times 32 values; `Simd` allows unaligned loads.
                    unsafe {
                        sum_f32::<S>(height, dim, a.as_ptr(), (stride, 1), bytes.as_ptr().cast(), sums);
                    }
                } else {
                    // SAFETY: as above, for a panel in f16.
                    unsafe {
                        sum_f16::<S>(height, dim, a.as_ptr(), stride, bytes.as_ptr().cast(), sums);
                    }
                }
                // -0 becomes 0, which is equal by `>` but not in the order of results.
                for sums in &mut sums[..height] {
                    for sum in sums {
                        *sum += 0.0;
                    }
                }
            }
            Input::Int8 { values, stride, scales } => {
                let quads = dim.div_ceil(4);
                let (head, bytes) = bytes.split_at(HEAD);
                let (of_rows, offsets) = head.split_at(4 * LANES);
                let a = &values[of.start * stride..(of.end - 1) * stride + 4 * quads * S::INPUT];
                // SAFETY: as above; a panel in int8 has `quads` times 128 bytes after its head.
                unsafe {
                    sum_i8::<S>(height, quads, a.as_ptr(), stride, bytes.as_ptr().cast(), ints);
                }
                let of_rows = of_rows.as_chunks::<4>().0;
                let offsets = offsets.as_chunks::<4>().0;
                for ((sums, ints), scale) in sums.iter_mut().zip(ints).zip(&scales[of]) {
                    for i in 0..LANES {
                        let sum = ints[i] - i32::from_le_bytes(offsets[i]);
                        // An exact 0 is not -0, because scales are positive.
                        sums[i] = sum as f32 * (f32::from_le_bytes(of_rows[i]) * scale);
                    }
                }
            }
        }
    }
}

/// The values of a panel in f16.
#[inline(always)]
fn widen<S: Simd>(panel: &[u8], wide: &mut [f32]) {
    for (halves, wide) in panel.as_chunks::<{ 2 * LANES }>().0.iter().zip(wide.as_chunks_mut::<LANES>().0) {
        // SAFETY: `dispatch` has checked that the machine has `S`; 64 bytes are 32 values in 16 bits.
        unsafe { S::store_floats(wide.as_mut_ptr(), S::load_halves(halves.as_ptr().cast())) };
    }
}

/// The best `k` rows of each of `count` queries. `offer` offers the rows of one of `blocks` blocks, in
/// ascending order, to all queries.
pub(crate) fn best(
    blocks: usize,
    count: usize,
    k: usize,
    offer: &(dyn Fn(usize, &mut [Top]) + Sync),
) -> Vec<Vec<(u32, f32)>> {
    let pool = ThreadPool::global();
    let next = AtomicUsize::new(0);
    let workers: Vec<Mutex<Vec<Top>>> = (0..pool.threads().min(blocks)).map(|_| Mutex::default()).collect();
    pool.run(workers.len(), &|worker| {
        let mut tops = vec![Top::new(k); count];
        loop {
            // A worker's blocks are in ascending order, as `Top` requires.
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= blocks {
                break;
            }
            offer(at, &mut tops);
        }
        *workers[worker].lock().unwrap_or_else(PoisonError::into_inner) = tops;
    });
    let mut parts: Vec<_> = workers
        .into_iter()
        .map(|worker| worker.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter())
        .collect();
    let parts: Vec<Vec<Top>> =
        (0..count).map(|_| parts.iter_mut().filter_map(Iterator::next).collect()).collect();
    parts.into_par_iter().map(|parts| Top::merged(parts, k)).collect()
}

/// Offers the lanes that are set in `above`.
#[inline(never)]
fn offer(top: &mut Top, mut above: u32, rows: usize, sums: &[f32; LANES], filter: Option<Filter<'_>>) {
    while above != 0 {
        let lane = above.trailing_zeros() as usize;
        above &= above - 1;
        let row = (rows + lane) as u32;
        // The threshold may have risen since the mask was made.
        if sums[lane] > top.threshold() && filter.is_none_or(|filter| filter(row)) {
            top.offer(row, sums[lane]);
        }
    }
}
