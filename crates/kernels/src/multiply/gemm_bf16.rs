//! Matrix products in bf16 (mixed precision), for training.
//!
//! Processors with AVX-512 BF16 multiply two pairs of such values in the time of one in f32 and read half the
//! memory. Sums are in f32, in an order that depends neither on the number of threads nor on the partition of
//! the work.

use std::{arch::x86_64::*, cell::Cell, ops::Range};

use rayon::prelude::*;

use crate::{
    multiply::{Scaled, Shared, View},
    simd::{LANES, MOST_ROWS, SQUARE, Simd, Vnni, microkernel::tile, transpose},
};

/// The largest number of inputs summed at once: a panel of them fits the L1 cache, and a part's operands the
/// L2 cache.
const MOST_DEPTH: usize = 576;
/// The number of rows reordered at once, which bounds memory.
const ROWS: usize = 16 * STRIP;
/// The number of columns reordered at once.
const COLUMNS: usize = 64 * LANES;
/// Rows of a part.
const STRIP: usize = 22 * MOST_ROWS;
/// Panels of a part.
const PANELS: usize = 4;
/// The number of rows or columns that a thread reorders together. With large strides, each first value costs
/// a page-table walk.
const TOGETHER: usize = 256;
/// The number of values or pairs in a vector, which is a row of a transposition.
const WIDTH: usize = SQUARE;

/// Two inputs of a row or of a column, the first in the lower half.
type Pair = u32;

/// Whether this machine multiplies in bf16.
pub(crate) fn is_available() -> bool {
    is_x86_feature_detected!("avx512bf16") && crate::Isa::detected() >= crate::Isa::Vnni
}

thread_local! {
    /// Buffers of the reordered operands, reused by later products.
    static SCRATCH: Cell<[Vec<Pair>; 2]> = const { Cell::new([Vec::new(), Vec::new()]) };
}

/// Computes `out = scale a b`, or adds that to `out`; sizes and views have been checked.
pub(crate) fn multiply(
    threads: usize,
    (out, o): (&mut [f32], View),
    (a, va): (&[f32], View),
    (b, vb): (&[f32], View),
    scaled: Scaled,
) {
    assert!(is_available(), "the machine has no products in bf16");
    // Taken, not borrowed: a waiting thread may run another product in the meantime.
    let [mut panels, mut rows] = SCRATCH.take();
    // In even parts: a short last one would still read and write all of `out`.
    let parts = va.columns.div_ceil(MOST_DEPTH).max(1);
    let together = (va.columns.div_ceil(2 * parts) * 2).max(2);
    for first in (0..va.columns).step_by(together) {
        let length = (va.columns - first).min(together);
        let depth = length.div_ceil(2);
        let scaled = Scaled { adds: scaled.adds || first > 0, ..scaled };
        for row in (0..o.rows).step_by(ROWS) {
            let count = ROWS.min(o.rows - row);
            group::<MOST_ROWS>(threads, a, va.part((row, count), (first, length)), depth, &mut rows);
            for column in (0..o.columns).step_by(COLUMNS) {
                let columns = COLUMNS.min(o.columns - column);
                let right = vb.part((first, length), (column, columns)).transposed();
                group::<LANES>(threads, b, right, depth, &mut panels);
                let product = Operands {
                    rows: &rows,
                    panels: &panels,
                    depth,
                    columns,
                    out: Shared(out[o.offset + row * o.row_stride + column..].as_mut_ptr()),
                    out_stride: o.row_stride,
                    scaled,
                };
                let strips = count.div_ceil(STRIP);
                let part = |at: usize| {
                    let first = at % strips * STRIP;
                    // SAFETY: the features exist; the rows and panels were reordered above. These rows of the
                    // panels' columns of `out`, which is borrowed until all parts are finished, belong to
                    // this part.
                    unsafe { product.part(at / strips, first..count.min(first + STRIP)) };
                };
                let parts = columns.div_ceil(LANES * PANELS) * strips;
                if threads > 1 {
                    (0..parts).into_par_iter().for_each(part);
                } else {
                    (0..parts).for_each(part);
                }
            }
        }
    }
    SCRATCH.set([panels, rows]);
}

/// Up to 32 values as pairs, padded with zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn round_line(values: &[f32]) -> __m512i {
    let half = |values: &[f32]| {
        let mask = first_lanes(values.len());
        // SAFETY: the mask names values of the slice.
        unsafe { _mm512_maskz_loadu_ps(mask, values.as_ptr()) }
    };
    let (first, second) = values.split_at(values.len().min(WIDTH));
    let rounded = _mm512_cvtne2ps_pbh(half(second), half(first));
    // SAFETY: both are 64 bytes, and any bits are pairs.
    unsafe { std::mem::transmute(rounded) }
}

/// A mask of the first lanes of a vector.
fn first_lanes(count: usize) -> __mmask16 {
    ((1_u32 << count.min(WIDTH)) - 1) as __mmask16
}

/// Writes rows in groups of `SIZE`: for each pair of columns the group's values next to each other, padded
/// with zeros.
fn group<const SIZE: usize>(threads: usize, values: &[f32], view: View, depth: usize, out: &mut Vec<Pair>) {
    let length = view.rows.div_ceil(SIZE) * SIZE * depth;
    out.resize(out.len().max(length), 0);
    let together = TOGETHER / SIZE * SIZE;
    let size = together * depth;
    let work = |(at, out): (usize, &mut [Pair])| {
        let first = at * together;
        let view = view.part((first, (view.rows - first).min(together)), (0, view.columns));
        // SAFETY: `multiply` has asserted the features.
        unsafe {
            if view.row_stride == 1 {
                group_columns::<SIZE>(values, view, depth, out);
            } else {
                group_rows::<SIZE>(values, view, depth, out);
            }
        }
    };
    if threads > 1 {
        out[..length].par_chunks_mut(size).enumerate().for_each(work);
    } else {
        out[..length].chunks_mut(size).enumerate().for_each(work);
    }
}

/// For contiguous columns.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn group_columns<const SIZE: usize>(values: &[f32], view: View, depth: usize, out: &mut [Pair]) {
    // The lower half of the result's lanes and the upper one, alternating.
    let order = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18,
        2, 17, 1, 16, 0,
    );
    for at in 0..depth {
        for (group, out) in out.chunks_exact_mut(depth * SIZE).enumerate() {
            let out = &mut out[at * SIZE..][..SIZE];
            for (block, out) in out.chunks_mut(WIDTH).enumerate() {
                let row = group * SIZE + block * WIDTH;
                let lanes = first_lanes(view.rows.saturating_sub(row).min(out.len()));
                let load = |column: usize| {
                    if column >= view.columns || lanes == 0 {
                        return _mm512_setzero_ps();
                    }
                    let from = &values[view.offset + row + column * view.column_stride..];
                    // SAFETY: the lanes are values of the view.
                    unsafe { _mm512_maskz_loadu_ps(lanes, from.as_ptr()) }
                };
                let rounded = _mm512_cvtne2ps_pbh(load(2 * at + 1), load(2 * at));
                // SAFETY: 64 bytes of any bits; the lanes are those of `out`.
                unsafe {
                    let pairs =
                        _mm512_permutexvar_epi16(order, std::mem::transmute::<__m512bh, __m512i>(rounded));
                    _mm512_mask_storeu_epi32(out.as_mut_ptr().cast(), first_lanes(out.len()), pairs);
                }
            }
        }
    }
}

/// For contiguous rows, or neither.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn group_rows<const SIZE: usize>(values: &[f32], view: View, depth: usize, out: &mut [Pair]) {
    for (group, out) in out.chunks_exact_mut(depth * SIZE).enumerate() {
        for (block, out) in out.chunks_mut(WIDTH * SIZE).enumerate() {
            let column = block * 2 * WIDTH;
            let count = (2 * WIDTH).min(view.columns - column);
            for lane in (0..SIZE).step_by(WIDTH) {
                let first = group * SIZE + lane;
                let rows = view.rows.saturating_sub(first).min(SIZE - lane).min(WIDTH);
                let mut lines = [_mm512_setzero_si512(); WIDTH];
                for (row, line) in lines.iter_mut().enumerate().take(rows) {
                    let from = view.offset + (first + row) * view.row_stride + column * view.column_stride;
                    *line = if view.column_stride == 1 {
                        round_line(&values[from..][..count])
                    } else {
                        let mut line = [0.0; 2 * WIDTH];
                        for (at, value) in line[..count].iter_mut().enumerate() {
                            *value = values[from + at * view.column_stride];
                        }
                        round_line(&line)
                    };
                }
                let lanes = first_lanes(SIZE - lane);
                for (out, pairs) in out.as_chunks_mut::<SIZE>().0.iter_mut().zip(transpose(lines)) {
                    // SAFETY: the lanes are places of `out` from `lane` on.
                    unsafe { _mm512_mask_storeu_epi32(out[lane..].as_mut_ptr().cast(), lanes, pairs) };
                }
            }
        }
    }
}

/// A product with reordered operands.
struct Operands<'a> {
    rows: &'a [Pair],
    panels: &'a [Pair],
    depth: usize,
    columns: usize,
    out: Shared,
    out_stride: usize,
    scaled: Scaled,
}

impl Operands<'_> {
    /// Computes `rows`, the first of which starts a group, of the columns of part `at`.
    ///
    /// # Safety
    /// The machine must have the features, the operands these rows and columns, and `out` these elements, with exclusive access.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma,f16c")]
    unsafe fn part(&self, at: usize, rows: Range<usize>) {
        let depth = self.depth;
        let mut sums = [[0f32; LANES]; MOST_ROWS];
        for panel in at * PANELS..((at + 1) * PANELS).min(self.columns.div_ceil(LANES)) {
            let values = &self.panels[panel * depth * LANES..][..depth * LANES];
            let width = LANES.min(self.columns - panel * LANES);
            for first in rows.clone().step_by(MOST_ROWS) {
                let height = MOST_ROWS.min(rows.end - first);
                let rows = &self.rows[first * depth..][..MOST_ROWS * depth];
                // SAFETY: both slices hold the values that the tile reads.
                unsafe { tile!(Vnni::tile_bf16, height, depth, rows.as_ptr(), values.as_ptr(), &mut sums) };
                for (row, sums) in sums[..height].iter().enumerate() {
                    // SAFETY: elements of this part, by the contract.
                    unsafe {
                        let from = (first + row) * self.out_stride + panel * LANES;
                        let out = std::slice::from_raw_parts_mut(self.out.0.add(from), width);
                        self.scaled.store::<Vnni>(out, sums);
                    }
                }
            }
        }
    }
}

impl Vnni {
    /// The products of a tile: `out[r]` is row `r` times the panel.
    ///
    /// # Safety
    /// The machine must have AVX-512 BF16. `rows` must be valid for `depth` times [`MOST_ROWS`] pairs, and `panel` for `depth` times 32.
    #[inline(always)]
    unsafe fn tile_bf16<const M: usize>(
        depth: usize,
        rows: *const Pair,
        panel: *const Pair,
        out: &mut [[f32; LANES]; MOST_ROWS],
    ) {
        // SAFETY: `at < depth` and `row < M`, so the pointers are good by the contract; each row of `out` has 32 values.
        unsafe {
            let mut sums = [Self::zero_floats(); M];
            for at in 0..depth {
                let half = |first: usize| as_pairs(_mm512_loadu_si512(panel.add(at * LANES + first).cast()));
                let (left, right) = (half(0), half(16));
                for (row, sum) in sums.iter_mut().enumerate() {
                    let by = _mm512_set1_epi32(rows.add(at * MOST_ROWS + row).read().cast_signed());
                    sum.0 = _mm512_dpbf16_ps(sum.0, as_pairs(by), left);
                    sum.1 = _mm512_dpbf16_ps(sum.1, as_pairs(by), right);
                }
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                Self::store_floats(out.as_mut_ptr(), sum);
            }
        }
    }
}

/// A vector's bits as pairs of values.
#[inline(always)]
fn as_pairs(bits: __m512i) -> __m512bh {
    // SAFETY: both are 64 bytes, and any bits are values.
    unsafe { std::mem::transmute(bits) }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    fn wave(count: usize, pace: f32) -> Vec<f32> {
        (0..count).map(|at| (at as f32 * pace).sin()).collect()
    }

    /// A view with contiguous rows, contiguous columns, or neither.
    fn view(kind: usize, rows: usize, columns: usize) -> View {
        match kind {
            0 => View::rows(1, rows, columns, columns + 2),
            1 => View::rows(2, columns, rows, rows + 3).transposed(),
            _ => View { column_stride: 2, ..View::rows(3, rows, columns, 2 * columns + 1) },
        }
    }

    fn check(rows: usize, depth: usize, columns: usize, kinds: [usize; 2], threads: usize, adds: bool) {
        let (va, vb, o) = (
            view(kinds[0], rows, depth),
            view(kinds[1], depth, columns),
            View::rows(3, rows, columns, columns + 1),
        );
        let length =
            |view: View| view.offset + view.rows * view.row_stride.max(1) + view.columns * view.column_stride;
        let (a, b) = (wave(length(va), 0.7), wave(length(vb), 0.3));
        let before = wave(length(o), 0.1);
        let mut out = before.clone();
        multiply(threads, (&mut out, o), (&a, va), (&b, vb), Scaled { scale: 0.5, adds });
        let value = |values: &[f32], view: View, row: usize, column: usize| {
            let value = values[view.offset + row * view.row_stride + column * view.column_stride];
            bf16::from_f32(value).to_f64()
        };
        for row in 0..rows {
            for column in 0..columns {
                let terms = (0..depth).map(|at| value(&a, va, row, at) * value(&b, vb, at, column));
                let at = o.offset + row * o.row_stride + column;
                let old = if adds { f64::from(before[at]) } else { 0.0 };
                let error = f64::from(out[at]) - old - 0.5 * terms.sum::<f64>();
                assert!(error.abs() < 1e-4, "{rows} {depth} {columns} {kinds:?} {row} {column}: {error}");
            }
            // The gaps between rows are unchanged.
            if row + 1 < rows {
                let gap = o.offset + row * o.row_stride + columns;
                assert_eq!(out[gap], before[gap]);
            }
        }
    }

    #[test]
    fn products_are_the_sums_of_rounded_terms() {
        if !is_available() {
            return;
        }
        for (rows, depth, columns) in [(1, 1, 1), (5, 7, 3), (13, 40, 33), (70, 129, 64), (100, 16, 97)] {
            for kinds in [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [0, 2]] {
                for threads in [1, 3] {
                    check(rows, depth, columns, kinds, threads, false);
                    check(rows, depth, columns, kinds, threads, true);
                }
            }
        }
    }

    #[test]
    fn operands_that_are_ordered_in_parts_give_the_same_sums() {
        if !is_available() {
            return;
        }
        for kinds in [[0, 1], [1, 0]] {
            // More rows, inputs and columns than are reordered at once.
            check(ROWS + 5, 3, COLUMNS + 35, kinds, 2, true);
            check(7, 2 * MOST_DEPTH + 3, 5, kinds, 1, false);
        }
    }
}
