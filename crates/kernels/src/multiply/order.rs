//! Reordering of operands into the layout of tiles.

use super::View;
use crate::{
    isa::{Isa, dispatch},
    simd::{LANES, SQUARE, Simd},
};

/// The columns of the view from `32 at` on, row by row, padded with zeros after the last column.
pub(crate) fn panel(isa: Isa, b: &[f32], view: View, at: usize, out: &mut [f32]) {
    #[inline(always)]
    fn body<S: Simd>(b: &[f32], view: View, at: usize, out: &mut [f32]) {
        // SAFETY: `dispatch` has checked that the machine has `S`.
        unsafe { panel_in::<S>(b, view, at, out) };
    }
    dispatch!(isa, body(b: &[f32], view: View, at: usize, out: &mut [f32]));
}

/// The same.
///
/// # Safety
/// The machine must have `S`.
#[inline(always)]
pub(super) unsafe fn panel_in<S: Simd>(b: &[f32], view: View, at: usize, out: &mut [f32]) {
    let first = at * LANES;
    let width = LANES.min(view.columns - first);
    let view = view.part((0, view.rows), (first, width));
    if width < LANES {
        out.fill(0.0);
    }
    if view.column_stride == 1 && width == LANES {
        for (row, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let from = &b[view.offset + row * view.row_stride..][..LANES];
            // SAFETY: the contract; both are 32 values.
            unsafe { S::store_floats(out.as_mut_ptr(), S::load_floats(from.as_ptr())) };
        }
    } else if view.column_stride == 1 {
        for (row, out) in out.chunks_exact_mut(LANES).enumerate() {
            out[..width].copy_from_slice(&b[view.offset + row * view.row_stride..][..width]);
        }
    } else {
        // SAFETY: the contract.
        unsafe { transpose::<S>(b, view.transposed(), LANES, out) };
    }
}

/// The rows of the view, `stride` values apart.
///
/// # Safety
/// The machine must support `S`.
#[inline(always)]
pub(super) unsafe fn rows<S: Simd>(a: &[f32], view: View, stride: usize, out: &mut [f32]) {
    if view.column_stride == 1 {
        for (row, out) in out.chunks_exact_mut(stride).enumerate().take(view.rows) {
            out[..view.columns].copy_from_slice(&a[view.offset + row * view.row_stride..][..view.columns]);
        }
    } else {
        // SAFETY: the contract.
        unsafe { transpose::<S>(a, view.transposed(), stride, out) };
    }
}

/// Writes the columns of the view as rows, `stride` values apart. Square blocks use vectors if rows of the
/// view are contiguous; other values are copied one by one.
///
/// # Safety
/// The machine must support `S`.
#[inline(always)]
unsafe fn transpose<S: Simd>(from: &[f32], view: View, stride: usize, to: &mut [f32]) {
    // Writes are contiguous; squares along a row of the view share cache lines.
    for row in (0..view.rows).step_by(SQUARE) {
        let rows = SQUARE.min(view.rows - row);
        for column in (0..view.columns).step_by(SQUARE) {
            let columns = SQUARE.min(view.columns - column);
            let square = view.part((row, rows), (column, columns));
            let first = column * stride + row;
            if view.column_stride == 1 && rows == SQUARE && columns == SQUARE {
                let from = &from[square.offset..square.end()];
                let to = &mut to[first..first + (SQUARE - 1) * stride + SQUARE];
                // SAFETY: the contract; both slices have the size of the square.
                unsafe { S::transpose(from.as_ptr(), square.row_stride, to.as_mut_ptr(), stride) };
                continue;
            }
            for column in 0..columns {
                let from = &from[square.offset + column * square.column_stride..];
                for (row, to) in to[first + column * stride..][..rows].iter_mut().enumerate() {
                    *to = from[row * square.row_stride];
                }
            }
        }
    }
}
