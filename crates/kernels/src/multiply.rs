//! Matrix products of strided views, for operands that change between products, as in training.
//!
//! Operands are reordered into the layout of tiles if necessary: the right one into panels of 32 columns, the
//! left one into rows. A thread reorders the operands of its part block by block just before their use, so
//! that they stay in the L2 cache. A right operand that many parts use is reordered once in advance.

use std::{cell::Cell, ops::Range};

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(target_arch = "x86_64")]
use crate::amx::{self, Sums};
use crate::{
    buffer::Lines,
    grid::Grid,
    isa::{Isa, dispatch},
    simd::{
        LANES, Simd,
        microkernel::{strips, tiles},
    },
};

/// A matrix inside a slice: its start, its size, and its strides.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// The index of the first value.
    pub offset: usize,
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// The distance between rows.
    pub row_stride: usize,
    /// The distance between columns.
    pub column_stride: usize,
}

impl View {
    /// Rows of `stride` values, of which the first `columns` are used.
    #[must_use]
    pub fn rows(offset: usize, rows: usize, columns: usize, stride: usize) -> Self {
        Self { offset, rows, columns, row_stride: stride, column_stride: 1 }
    }

    /// Rows of `columns` values without gaps.
    #[must_use]
    pub fn packed(rows: usize, columns: usize) -> Self {
        Self::rows(0, rows, columns, columns)
    }

    /// The transposed view.
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
    pub(crate) fn part(self, (row, rows): (usize, usize), (column, columns): (usize, usize)) -> Self {
        Self {
            offset: self.offset + row * self.row_stride + column * self.column_stride,
            rows,
            columns,
            ..self
        }
    }

    /// One past the last index of the view.
    fn end(&self) -> usize {
        if self.rows == 0 || self.columns == 0 {
            return self.offset;
        }
        self.offset + (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride + 1
    }
}

/// The precision of products in training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrainingPrecision {
    /// In 32 bits.
    #[default]
    F32,
    /// bf16 operands with f32 accumulation (mixed precision), if the machine does that faster; otherwise f32.
    Bf16,
}

impl TrainingPrecision {
    /// Whether this machine rounds the operands of such products.
    #[must_use]
    pub fn rounds(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        let is_faster = match Isa::detected() {
            Isa::Amx => true,
            Isa::Vnni => gemm_bf16::is_available(),
            _ => false,
        };
        #[cfg(not(target_arch = "x86_64"))]
        let is_faster = false;
        self == Self::Bf16 && is_faster
    }
}

/// How sums become results.
#[derive(Debug, Clone, Copy)]
pub struct Scaled {
    /// The factor.
    pub scale: f32,
    /// Whether the result is added to the previous value.
    pub adds: bool,
}

impl Scaled {
    /// Stores the results of sums.
    ///
    /// # Safety
    /// The machine must support `S`.
    #[inline(always)]
    pub(crate) unsafe fn store<S: Simd>(self, out: &mut [f32], sums: &[f32; LANES]) {
        match out.as_mut_array::<LANES>() {
            // Manual vectors, because the compiler does not vectorise the loop below. SAFETY: the contract,
            // and 32 values each.
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
    /// Buffers of a part's reordered rows and panel, reused by later parts.
    static PART: Cell<[Lines; 2]> = Cell::default();
    /// The buffer of panels for all parts, reused by later products.
    static PANELS: Cell<Lines> = Cell::default();
}

/// Computes `out = scale a b`, or adds that to `out`, on up to `threads` threads of the current rayon pool.
/// The order of an element's sum does not depend on the number of threads: it follows the columns of `a`, in
/// 32 bits, in blocks of 512.
///
/// # Panics
/// If sizes do not match, a view exceeds its slice, or rows of `out` overlap or are not contiguous.
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
        return gemm_bf16::multiply(threads, (out, o), (a, va), (b, vb), scaled);
    }
    let is_tiled = is_tiled(isa, o);
    let grid = |columns: usize| {
        let panels = columns.div_ceil(LANES);
        if is_tiled {
            Grid::new(isa, o.rows, panels, va.columns, threads, true)
        } else {
            Grid::of_pieces(isa, o.rows, panels, va.columns.min(PIECE), threads)
        }
    };
    let mut product = Operands {
        a,
        va,
        // Rows at multiples of 2 KiB share few lines of the L1 cache, so they are reordered. Columns of
        // narrow rows are used directly: a cache line has a tile's values of one or two rows.
        is_ready: is_tiled
            || (va.column_stride == 1 && (va.rows == 1 || !va.row_stride.is_multiple_of(512)))
            || (va.row_stride == 1 && va.column_stride <= NARROW),
        b,
        vb,
        panels: None,
        out: Shared(out[o.offset..].as_mut_ptr()),
        out_stride: o.row_stride,
        scaled,
        is_tiled,
        is_rounded: precision.rounds(),
    };
    let whole = grid(o.columns);
    let is_panel = vb.columns == LANES && vb.column_stride == 1 && vb.row_stride == LANES;
    if is_panel {
        product.panels = Some(&b[vb.offset..]);
    }
    if is_panel || (whole.row_blocks() <= OWN && !is_tiled) {
        // SAFETY: the views were checked above, and `out` is borrowed until all parts are finished.
        unsafe { product.run(isa, threads, &whole) };
        return;
    }
    let depth = if is_tiled {
        va.columns
    } else {
        let pieces = ORDERED / PIECE / o.columns.next_multiple_of(LANES);
        va.columns.min(pieces.max(1) * PIECE)
    };
    let most = (ORDERED / depth / LANES).max(1) * LANES;
    // Taken, not borrowed: a waiting thread may run another product in the meantime.
    let mut panels = PANELS.take();
    for column in (0..o.columns).step_by(most) {
        let columns = most.min(o.columns - column);
        let grid = grid(columns);
        for first in (0..va.columns).step_by(depth) {
            let depth = depth.min(va.columns - first);
            let vb = vb.part((first, depth), (column, columns));
            let length = columns.div_ceil(LANES) * depth * LANES;
            panels.resize(panels.len().max(length));
            let order = |(at, panel): (usize, &mut [f32])| order::panel(isa, b, vb, at, panel);
            if threads > 1 {
                panels[..length].par_chunks_mut(depth * LANES).enumerate().for_each(order);
            } else {
                panels[..length].chunks_mut(depth * LANES).enumerate().for_each(order);
            }
            let product = Operands {
                va: va.part((0, va.rows), (first, depth)),
                vb,
                panels: Some(&panels),
                out: Shared(out[o.offset + column..].as_mut_ptr()),
                scaled: Scaled { adds: scaled.adds || first > 0, ..scaled },
                ..product
            };
            // SAFETY: as above.
            unsafe { product.run(isa, threads, &grid) };
        }
    }
    PANELS.set(panels);
}

/// Checks a product's operands. Returns whether there is something to sum; if not, the result is complete.
fn has_sums(
    (out, o): (&mut [f32], View),
    (a, va): (&[f32], View),
    (b, vb): (&[f32], View),
    scaled: Scaled,
) -> bool {
    assert_eq!((o.rows, o.columns, va.columns), (va.rows, vb.columns, vb.rows), "sizes of a product");
    assert!(o.end() <= out.len() && va.end() <= a.len() && vb.end() <= b.len(), "a view leaves its slice");
    // Several threads write elements of the result.
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

/// The largest number of panel values that are reordered for all parts at once, which bounds memory.
const ORDERED: usize = 1 << 22;

/// The number of inputs in a block. Its sum is added to that of the others, so that a part's rows and a panel
/// stay in the L2 cache.
const PIECE: usize = 512;

/// The largest number of row blocks that reorder the panels separately.
const OWN: usize = 2;

/// Rows up to this length are read by columns without reordering.
const NARROW: usize = 64;

/// The elements of a result.
#[derive(Clone, Copy)]
pub(crate) struct Shared(pub(crate) *mut f32);
// SAFETY: each element is written by the one part that owns it.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The operands that the parts of a product share.
#[derive(Clone, Copy)]
struct Operands<'a> {
    a: &'a [f32],
    va: View,
    /// Whether tiles read `a` directly.
    is_ready: bool,
    b: &'a [f32],
    vb: View,
    /// The reordered `b`, panel by panel; without it each part reorders its panels.
    panels: Option<&'a [f32]>,
    out: Shared,
    out_stride: usize,
    scaled: Scaled,
    is_tiled: bool,
    /// Whether tiles multiply in bf16.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there are no tiles"))]
    is_rounded: bool,
}

impl Operands<'_> {
    /// Computes all parts of the grid.
    ///
    /// # Safety
    /// The views must be inside their slices, and `out` must have the grid's elements, with exclusive access.
    unsafe fn run(&self, isa: Isa, threads: usize, grid: &Grid) {
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
    /// As for [`run`](Self::run), for these elements.
    unsafe fn part(&self, isa: Isa, rows: Range<usize>, panels: Range<usize>) {
        #[inline(always)]
        fn body<S: Simd>(product: &Operands<'_>, rows: Range<usize>, panels: Range<usize>) {
            // SAFETY: `dispatch` has checked that the machine has `S`; the rest is the contract of `part`.
            unsafe { product.part_body::<S>(rows, panels) }
        }
        let product = self;
        dispatch!(isa, body(product: &Operands<'_>, rows: Range<usize>, panels: Range<usize>));
    }

    /// Computes `rows` by `panels` with [`amx`].
    ///
    /// # Safety
    /// As for [`part`](Self::part); the panels must be in order.
    #[cfg(target_arch = "x86_64")]
    unsafe fn tiled_part(&self, isa: Isa, rows: Range<usize>, panels: Range<usize>) {
        #[inline(always)]
        fn body<S: Simd>(product: &Operands<'_>, sums: &mut Sums, rows: Range<usize>, panels: Range<usize>) {
            for panel in panels.clone() {
                for (at, row) in rows.clone().enumerate() {
                    let sums = sums.floats(panel - panels.start, at);
                    // SAFETY: the contract of `tiled_part`.
                    unsafe { product.end_row::<S>(panel, row, product.scaled, sums) };
                }
            }
        }
        #[inline(always)]
        fn order<S: Simd>(a: &[f32], va: View, stride: usize, rows: &mut [f32]) {
            // SAFETY: `dispatch` has checked that the machine has `S`.
            unsafe { order::rows::<S>(a, va, stride, rows) };
        }
        let (product, size) = (self, self.va.columns * LANES);
        let mut va = self.va.part((rows.start, rows.len()), (0, self.va.columns));
        let [mut left, right] = PART.take();
        let mut a = self.a;
        if va.row_stride == 1 && va.column_stride > 1 {
            // The unit reads rows. Squares are transposed faster than single values are collected.
            let stride = va.columns.next_multiple_of(16) + 16;
            left.resize(left.len().max(rows.len() * stride));
            let out = &mut left[..rows.len() * stride];
            dispatch!(isa, order(a: &[f32], va: View, stride: usize, out: &mut [f32]));
            va = View::rows(0, rows.len(), va.columns, stride);
            a = &left;
        }
        Sums::with(|sums| {
            let a = &a[va.offset..];
            let ordered = self.panels.expect("panels are ordered for AMX before");
            let values = &ordered[panels.start * size..panels.end * size];
            let strides = (va.row_stride, va.column_stride);
            if self.is_rounded {
                sums.add_floats::<{ amx::ROUNDED }>(a, strides, rows.len(), va.columns, values);
            } else {
                sums.add_floats::<{ amx::EXACT }>(a, strides, rows.len(), va.columns, values);
            }
            dispatch!(isa, body(product: &Operands<'_>, sums: &mut Sums, rows: Range<usize>, panels: Range<usize>));
        });
        PART.set([left, right]);
    }

    /// Computes the results from the sums of a row and a panel, and stores them.
    ///
    /// # Safety
    /// As for [`part`](Self::part), and the machine must support `S`.
    #[inline(always)]
    unsafe fn end_row<S: Simd>(&self, panel: usize, row: usize, scaled: Scaled, sums: &[f32; LANES]) {
        let first = panel * LANES;
        let width = LANES.min(self.vb.columns - first);
        // SAFETY: an element of this part, by the contract.
        unsafe {
            let place = self.out.0.add(row * self.out_stride + first);
            scaled.store::<S>(std::slice::from_raw_parts_mut(place, width), sums);
        }
    }

    /// # Safety
    /// As for [`part`](Self::part), and the machine must have `S`.
    #[inline(always)]
    unsafe fn part_body<S: Simd>(&self, rows: Range<usize>, panels: Range<usize>) {
        let depth = self.va.columns;
        let [mut left, mut right] = PART.take();
        let mut sums = Lines::zeroed(rows.len().min(S::STRIP) * LANES);
        let sums = sums.as_chunks_mut::<LANES>().0;
        for first in (0..depth).step_by(PIECE) {
            let count = PIECE.min(depth - first);
            let scaled = Scaled { adds: self.scaled.adds || first > 0, ..self.scaled };
            let va = self.va.part((rows.start, rows.len()), (first, count));
            let (a, stride, step) = if self.is_ready {
                (&self.a[va.offset..], va.row_stride, va.column_stride)
            } else {
                let stride = count.next_multiple_of(16) + 16;
                left.resize(left.len().max(rows.len() * stride));
                // SAFETY: the machine has `S`, by the contract.
                unsafe { order::rows::<S>(self.a, va, stride, &mut left) };
                (&left[..], stride, 1)
            };
            for panel in panels.clone() {
                let values = if let Some(panels) = self.panels {
                    &panels[(panel * depth + first) * LANES..][..count * LANES]
                } else {
                    right.resize(right.len().max(count * LANES));
                    let vb = self.vb.part((first, count), (0, self.vb.columns));
                    // SAFETY: as above.
                    unsafe { order::panel_in::<S>(self.b, vb, panel, &mut right[..count * LANES]) };
                    &right[..count * LANES]
                };
                for Range { start, end } in strips::<S>(0..rows.len()) {
                    let a = &a[start * stride..(end - 1) * stride + (count - 1) * step + 1];
                    let to = (rows.start + start) * self.out_stride + panel * LANES;
                    for tile in tiles::<S>(end - start, count) {
                        let tile = tile.to(self.out.0.wrapping_add(to), self.out_stride);
                        // SAFETY: the slices are the inputs of the strip: rows of `count` values, and a
                        // panel.
                        unsafe { tile.sum_f32::<S>(a.as_ptr(), (stride, step), values.as_ptr(), sums) };
                        if tile.ends {
                            for (row, sums) in tile.rows.clone().zip(&sums[tile.rows]) {
                                // SAFETY: this part's rows and panels, by the contract.
                                unsafe { self.end_row::<S>(panel, rows.start + start + row, scaled, sums) };
                            }
                        }
                    }
                }
            }
        }
        PART.set([left, right]);
    }
}

/// Whether a product uses AMX: narrow ones would leave most of a tile empty.
#[cfg(target_arch = "x86_64")]
fn is_tiled(isa: Isa, out: View) -> bool {
    isa == Isa::Amx && out.rows >= amx::FLOAT_ROWS && out.columns >= LANES / 2
}

#[cfg(not(target_arch = "x86_64"))]
fn is_tiled(_isa: Isa, _out: View) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
mod gemm_bf16;
mod order;
pub(crate) use order::panel;

#[cfg(test)]
mod tests;
