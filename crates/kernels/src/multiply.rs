//! Products of matrices that lie anywhere in slices, for what changes between two products, as weights do in training.
//!
//! Both operands are brought into the order in which a tile reads them where they are not so already: the right one into panels of
//! 32 columns, the left one row after row. That costs one pass over each, for as many products as the other has rows.

use std::{cell::Cell, ops::Range};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

#[cfg(target_arch = "x86_64")]
use crate::amx::{self, Sums};
use crate::{
    buffer::Lines,
    grid::Grid,
    isa::{Isa, dispatch},
    simd::{
        LANES, MOST_ROWS, Simd,
        strip::{strips, tiles},
    },
};

/// A matrix inside a slice: where it starts, its size, and how far apart neighbours are.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// The place of the first value.
    pub offset: usize,
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// From a value to the one below it.
    pub row_stride: usize,
    /// From a value to the one to its right.
    pub column_stride: usize,
}

impl View {
    /// Rows of `stride` values, of which the first `columns` are looked at.
    #[must_use]
    pub fn rows(offset: usize, rows: usize, columns: usize, stride: usize) -> Self {
        Self { offset, rows, columns, row_stride: stride, column_stride: 1 }
    }

    /// Rows of `columns` values, one after the other.
    #[must_use]
    pub fn packed(rows: usize, columns: usize) -> Self {
        Self::rows(0, rows, columns, columns)
    }

    /// Rows as columns.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// A part, by its first row and column and the number of each.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn part(self, (row, rows): (usize, usize), (column, columns): (usize, usize)) -> Self {
        Self {
            offset: self.offset + row * self.row_stride + column * self.column_stride,
            rows,
            columns,
            ..self
        }
    }

    /// One past the last value that the view reaches.
    fn end(&self) -> usize {
        if self.rows == 0 || self.columns == 0 {
            return self.offset;
        }
        self.offset + (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride + 1
    }
}

/// How products are computed in training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrainingPrecision {
    /// In 32 bits.
    #[default]
    F32,
    /// Of values rounded to bf16, of which eight bits are kept, summed in 32 bits, where the machine does that faster; elsewhere in
    /// 32 bits.
    Bf16,
}

impl TrainingPrecision {
    /// Whether this machine rounds what such products take.
    #[must_use]
    pub fn rounds(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        let is_faster = Isa::detected() == Isa::Vnni && crate::rounded::is_available();
        #[cfg(not(target_arch = "x86_64"))]
        let is_faster = false;
        self == Self::Bf16 && is_faster
    }
}

/// What becomes of a sum.
#[derive(Debug, Clone, Copy)]
pub struct Scaled {
    /// What it is multiplied by.
    pub scale: f32,
    /// Whether it is added to what was there.
    pub adds: bool,
}

impl Scaled {
    /// Makes results of sums.
    ///
    /// # Safety
    /// The machine must have `S`.
    #[inline(always)]
    pub(crate) unsafe fn store<S: Simd>(self, out: &mut [f32], sums: &[f32; LANES]) {
        match out.as_mut_array::<LANES>() {
            // By hand: what a compiler makes of the loop below takes a value at a time.
            // SAFETY: the contract, and 32 values each.
            Some(out) => unsafe {
                let before = if self.adds { S::load_floats(out.as_ptr()) } else { S::zero_floats() };
                let sums = S::load_floats(sums.as_ptr());
                S::store_floats(out.as_mut_ptr(), S::add_product(before, self.scale, sums));
            },
            None => {
                for (out, sum) in out.iter_mut().zip(sums) {
                    let before = if self.adds { *out } else { 0.0 };
                    *out = S::mul_add(self.scale, *sum, before);
                }
            }
        }
    }
}

thread_local! {
    /// Memory of the operands that were brought into order, kept from one product to the next.
    static SCRATCH: Cell<(Lines, Vec<f32>)> = Cell::default();
}

/// `out = scale a b`, or that added to `out`, on so many threads of the rayon pool that the caller is in. The order of an element's
/// sum does not depend on the number of threads: that of `a`'s columns, in 32 bits, in pieces of 1,024 where there are more.
///
/// # Panics
/// Where sizes do not fit, a view leaves its slice, or values of `out` share a place or do not lie side by side in a row.
pub fn multiply(
    isa: Isa,
    threads: usize,
    precision: TrainingPrecision,
    (out, o): (&mut [f32], View),
    (a, va): (&[f32], View),
    (b, vb): (&[f32], View),
    scaled: Scaled,
) {
    if !has_sums((out, o), (a, va), (b, vb), scaled) {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Vnni && precision.rounds() {
        return crate::rounded::multiply(threads, (out, o), (a, va), (b, vb), scaled);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = precision;
    if !is_tiled(isa, o) && va.columns > PIECE {
        for start in (0..va.columns).step_by(PIECE) {
            let columns = PIECE.min(va.columns - start);
            let left = View { offset: va.offset + start * va.column_stride, columns, ..va };
            let right = View { offset: vb.offset + start * vb.row_stride, rows: columns, ..vb };
            let scaled = Scaled { adds: scaled.adds || start > 0, ..scaled };
            multiply(isa, threads, precision, (out, o), (a, left), (b, right), scaled);
        }
        return;
    }
    let depth = va.columns;
    // Taken, not borrowed: a thread that waits may meanwhile work on another product.
    let (mut panels, mut rows) = SCRATCH.take();
    let is_tiled = is_tiled(isa, o);
    // Rows whose distance is a multiple of 2 KiB fall into a few lines of the first cache. Columns of narrow rows are read where they
    // lie: each line of the cache holds a tile's values of one or two rows.
    let is_ready = is_tiled
        || (va.column_stride == 1 && (va.rows == 1 || !va.row_stride.is_multiple_of(512)))
        || (va.row_stride == 1 && va.column_stride <= NARROW);
    let is_panel = vb.columns == LANES && vb.column_stride == 1 && vb.row_stride == LANES;
    let row_stride = depth.next_multiple_of(16) + 16;
    let most_rows = if is_ready { o.rows } else { (ORDERED / row_stride).max(MOST_ROWS) };
    let most_columns = (ORDERED / depth / LANES).max(1) * LANES;
    for column in (0..o.columns).step_by(most_columns) {
        let columns = most_columns.min(o.columns - column);
        let size = depth * LANES;
        let length = columns.div_ceil(LANES) * depth * LANES;
        if !is_panel {
            panels.resize(panels.len().max(length));
            let right = View { offset: vb.offset + column * vb.column_stride, columns, ..vb };
            let pack = |(at, panel): (usize, &mut [f32])| pack_panel(b, right, at, panel);
            if threads > 1 {
                panels[..length].par_chunks_mut(size).enumerate().for_each(pack);
            } else {
                panels[..length].chunks_mut(size).enumerate().for_each(pack);
            }
        }
        for row in (0..o.rows).step_by(most_rows) {
            let count = most_rows.min(o.rows - row);
            let first = va.offset + row * va.row_stride;
            let (a, strides) = if is_ready {
                (&a[first..], (va.row_stride, va.column_stride))
            } else {
                let size = TOGETHER * row_stride;
                rows.resize(rows.len().max(count * row_stride), 0.0);
                let left = View { offset: first, rows: count, ..va };
                let pack =
                    |(at, block): (usize, &mut [f32])| pack_rows(a, left, at * TOGETHER, row_stride, block);
                if threads > 1 {
                    rows[..count * row_stride].par_chunks_mut(size).enumerate().for_each(pack);
                } else {
                    rows[..count * row_stride].chunks_mut(size).enumerate().for_each(pack);
                }
                (&rows[..], (row_stride, 1))
            };
            let out = Shared(out[o.offset + row * o.row_stride + column..].as_mut_ptr());
            let product = Operands {
                a,
                strides,
                panels: if is_panel { &b[vb.offset..] } else { &panels },
                depth,
                columns,
                out,
                out_stride: o.row_stride,
                scaled,
                is_tiled,
            };
            // SAFETY: the views were checked above, and `out` is borrowed until all parts are done.
            unsafe { product.run(isa, threads, count) };
        }
    }
    SCRATCH.set((panels, rows));
}

/// Checks a product's operands. Whether there is something to be summed; where there is not, the result is there already.
fn has_sums(
    (out, o): (&mut [f32], View),
    (a, va): (&[f32], View),
    (b, vb): (&[f32], View),
    scaled: Scaled,
) -> bool {
    assert_eq!((o.rows, o.columns, va.columns), (va.rows, vb.columns, vb.rows), "sizes of a product");
    assert!(o.end() <= out.len() && va.end() <= a.len() && vb.end() <= b.len(), "a view leaves its slice");
    // Elements of the result are written by several threads.
    assert!(o.column_stride == 1 && (o.rows <= 1 || o.row_stride >= o.columns), "overlapping result");
    if o.rows == 0 || o.columns == 0 {
        return false;
    }
    if va.columns == 0 && !scaled.adds {
        // Sums of no terms.
        for row in 0..o.rows {
            out[o.offset + row * o.row_stride..][..o.columns].fill(0.0);
        }
    }
    va.columns > 0
}

/// Values of an operand that are brought into order at once, at most; so memory does not grow with the operands.
const ORDERED: usize = 1 << 22;

/// Inputs that are summed before their sum is added to that of the others, so that a part's rows and a panel stay in the second cache.
const PIECE: usize = 1024;

/// Rows of at most so many values are read by columns without being brought into order.
const NARROW: usize = 64;

/// Rows, or columns, that are brought into order together.
const BLOCK: usize = 16;

/// Rows that a thread brings into order: many, since each first value of a column costs a look into the table of pages.
const TOGETHER: usize = 256;

/// Columns `32 at` and on, row after row, with zeros behind the last column.
fn pack_panel(b: &[f32], view: View, at: usize, panel: &mut [f32]) {
    let first = at * LANES;
    let width = LANES.min(view.columns - first);
    if width < LANES {
        panel.fill(0.0);
    }
    let from = view.offset + first * view.column_stride;
    if view.column_stride == 1 {
        for (row, out) in panel.chunks_exact_mut(LANES).enumerate() {
            out[..width].copy_from_slice(&b[from + row * view.row_stride..][..width]);
        }
        return;
    }
    for (block, out) in panel.chunks_mut(BLOCK * LANES).enumerate() {
        for lane in 0..width {
            let from = from + lane * view.column_stride + block * BLOCK * view.row_stride;
            for (row, out) in out.chunks_exact_mut(LANES).enumerate() {
                out[lane] = b[from + row * view.row_stride];
            }
        }
    }
}

/// Rows `first` and on, each `stride` values from the next.
fn pack_rows(a: &[f32], view: View, first: usize, stride: usize, out: &mut [f32]) {
    let rows = (out.len() / stride).min(view.rows - first);
    let from = view.offset + first * view.row_stride;
    if view.column_stride == 1 {
        for (row, out) in out.chunks_exact_mut(stride).enumerate().take(rows) {
            out[..view.columns].copy_from_slice(&a[from + row * view.row_stride..][..view.columns]);
        }
        return;
    }
    // What lies side by side is read together, and what is written lies side by side too.
    let mut block = [[0f32; TOGETHER]; BLOCK];
    for start in (0..view.columns).step_by(BLOCK) {
        let columns = BLOCK.min(view.columns - start);
        for (column, values) in block.iter_mut().enumerate().take(columns) {
            let from = &a[from + (start + column) * view.column_stride..];
            if view.row_stride == 1 {
                values[..rows].copy_from_slice(&from[..rows]);
            } else {
                for (row, value) in values.iter_mut().enumerate().take(rows) {
                    *value = from[row * view.row_stride];
                }
            }
        }
        for (row, out) in out.chunks_exact_mut(stride).enumerate().take(rows) {
            for (out, values) in out[start..start + columns].iter_mut().zip(&block) {
                *out = values[row];
            }
        }
    }
}

/// Where a result's elements are.
#[derive(Clone, Copy)]
pub(crate) struct Shared(pub(crate) *mut f32);
// SAFETY: each element is written by the one part that it belongs to.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// A product whose operands lie as tiles read them.
struct Operands<'a> {
    a: &'a [f32],
    /// From a row to the next, and from a value of a row to the next.
    strides: (usize, usize),
    panels: &'a [f32],
    depth: usize,
    columns: usize,
    out: Shared,
    out_stride: usize,
    scaled: Scaled,
    is_tiled: bool,
}

impl Operands<'_> {
    /// Computes `rows` rows.
    ///
    /// # Safety
    /// `a` must have these rows and `out` these elements, which nobody else may use.
    unsafe fn run(&self, isa: Isa, threads: usize, rows: usize) {
        let grid = Grid::new(isa, rows, self.columns.div_ceil(LANES), self.depth, threads, self.is_tiled);
        let part = |at: usize| {
            let (rows, panels) = grid.part(at);
            // SAFETY: the contract; the parts of a grid do not overlap.
            unsafe {
                #[cfg(target_arch = "x86_64")]
                if self.is_tiled {
                    return self.tiled_part(isa, rows, panels);
                }
                self.part(isa, rows, panels);
            }
        };
        if threads > 1 {
            (0..grid.parts()).into_par_iter().for_each(part);
        } else {
            (0..grid.parts()).for_each(part);
        }
    }

    /// Computes `rows` by `panels`.
    ///
    /// # Safety
    /// `a` must have these rows and `out` these elements, which no other thread may use.
    unsafe fn part(&self, isa: Isa, rows: Range<usize>, panels: Range<usize>) {
        #[inline(always)]
        fn body<S: Simd>(product: &Operands<'_>, rows: Range<usize>, panels: Range<usize>) {
            // SAFETY: `dispatch` has checked that the machine has `S`; the rest is the contract of `part`.
            unsafe { product.part_body::<S>(rows, panels) }
        }
        let product = self;
        dispatch!(isa, body(product: &Operands<'_>, rows: Range<usize>, panels: Range<usize>));
    }

    /// Computes `rows` by `panels` by [`amx`].
    ///
    /// # Safety
    /// As for [`part`](Self::part).
    #[cfg(target_arch = "x86_64")]
    unsafe fn tiled_part(&self, isa: Isa, rows: Range<usize>, panels: Range<usize>) {
        #[inline(always)]
        fn body<S: Simd>(product: &Operands<'_>, sums: &mut Sums, rows: Range<usize>, panels: Range<usize>) {
            for panel in panels.clone() {
                for (at, row) in rows.clone().enumerate() {
                    // SAFETY: the contract of `tiled_part`.
                    unsafe { product.end_row::<S>(panel, row, sums.floats(panel - panels.start, at)) };
                }
            }
        }
        let (product, size) = (self, self.depth * LANES);
        Sums::with(|sums| {
            let a = &self.a[rows.start * self.strides.0..];
            let panel = &self.panels[panels.start * size..panels.end * size];
            sums.add_floats(a, self.strides, rows.len(), self.depth, panel);
            dispatch!(isa, body(product: &Operands<'_>, sums: &mut Sums, rows: Range<usize>, panels: Range<usize>));
        });
    }

    /// Makes results of the sums of a row and a panel, and stores them.
    ///
    /// # Safety
    /// As for [`part`](Self::part), and the machine must have `S`.
    #[inline(always)]
    unsafe fn end_row<S: Simd>(&self, panel: usize, row: usize, sums: &[f32; LANES]) {
        let first = panel * LANES;
        let width = LANES.min(self.columns - first);
        // SAFETY: an element of this part, by the contract.
        unsafe {
            let place = self.out.0.add(row * self.out_stride + first);
            self.scaled.store::<S>(std::slice::from_raw_parts_mut(place, width), sums);
        }
    }

    #[inline(always)]
    unsafe fn part_body<S: Simd>(&self, rows: Range<usize>, panels: Range<usize>) {
        let Self { strides: (stride, step), depth, .. } = *self;
        let mut sums = Lines::zeroed(rows.len().min(S::STRIP) * LANES);
        let sums = sums.as_chunks_mut::<LANES>().0;
        for panel in panels {
            let values = &self.panels[panel * depth * LANES..][..depth * LANES];
            for Range { start, end } in strips::<S>(rows.clone()) {
                let a = &self.a[start * stride..(end - 1) * stride + (depth - 1) * step + 1];
                let to = self.out.0.wrapping_add(start * self.out_stride + panel * LANES);
                for tile in tiles::<S>(end - start, depth) {
                    let tile = tile.to(to, self.out_stride);
                    // SAFETY: the slices are what the strip reads: rows of `depth` values, and a panel.
                    unsafe { tile.sum_f32::<S>(a.as_ptr(), (stride, step), values.as_ptr(), sums) };
                    if tile.ends {
                        for (row, sums) in tile.rows.clone().zip(&sums[tile.rows]) {
                            // SAFETY: this part's rows and panels, by the contract.
                            unsafe { self.end_row::<S>(panel, start + row, sums) };
                        }
                    }
                }
            }
        }
    }
}

/// Whether a product is one for AMX: narrow ones would leave most of a tile empty.
#[cfg(target_arch = "x86_64")]
fn is_tiled(isa: Isa, out: View) -> bool {
    isa == Isa::Amx && out.rows >= amx::FLOAT_ROWS && out.columns >= LANES / 2
}

#[cfg(not(target_arch = "x86_64"))]
fn is_tiled(_isa: Isa, _out: View) -> bool {
    false
}

#[cfg(test)]
mod tests;
