//! Matrix products between slices. Work is cut into pieces of fixed sizes, so that no sum depends on how many threads there
//! are.

use gemm::{Parallelism, gemm};
use rayon::prelude::*;

/// Columns of a result that a thread makes at once: few enough that what they are made of stays in its cache while all rows
/// pass by.
const COLUMNS: usize = 256;

/// A matrix inside a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl View {
    /// Rows of `columns` values, one after the other.
    pub(super) fn new(rows: usize, columns: usize) -> Self {
        Self::strided(rows, columns, columns)
    }

    /// Rows whose starts are `stride` values apart.
    pub(super) fn strided(rows: usize, columns: usize, stride: usize) -> Self {
        Self { rows, columns, row_stride: stride, column_stride: 1 }
    }

    pub(super) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// One past the last value that the view reaches.
    fn end(&self) -> usize {
        if self.rows == 0 || self.columns == 0 {
            return 0;
        }
        (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride + 1
    }
}

/// `out = a b`, or `out += a b` where `adds`.
///
/// # Panics
/// Where the sizes do not fit or a view leaves its slice.
pub(super) fn product(
    (out, o): (&mut [f32], View),
    (a, va): (&[f32], View),
    (b, vb): (&[f32], View),
    adds: bool,
) {
    assert_eq!((o.rows, o.columns, va.columns), (va.rows, vb.columns, vb.rows), "sizes of a product");
    assert!(o.end() <= out.len() && va.end() <= a.len() && vb.end() <= b.len(), "a view leaves its slice");
    // Distinct elements of the result must not share a place, or the kernel would write it twice.
    assert!(o.column_stride == 1 && (o.rows <= 1 || o.row_stride >= o.columns), "overlapping result");
    if o.rows == 0 || o.columns == 0 {
        return;
    }
    // SAFETY: the assertions above prove that every element that the three views reach lies inside its slice and that the
    // result's elements do not overlap; `out` is borrowed exclusively, so it aliases neither operand.
    unsafe {
        gemm(
            o.rows,
            o.columns,
            va.columns,
            out.as_mut_ptr(),
            o.column_stride as isize,
            o.row_stride as isize,
            adds,
            a.as_ptr(),
            va.column_stride as isize,
            va.row_stride as isize,
            b.as_ptr(),
            vb.column_stride as isize,
            vb.row_stride as isize,
            if adds { 1.0 } else { 0.0 },
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// `out = a b`, row after row, on all threads.
///
/// # Panics
/// Where the sizes do not fit or a view leaves its slice.
pub(super) fn shared_product(out: &mut [f32], (a, va): (&[f32], View), (b, vb): (&[f32], View)) {
    let (rows, columns) = (va.rows, vb.columns);
    assert_eq!(out.len(), rows * columns, "size of a result");
    let parts: Vec<Vec<f32>> = (0..columns.div_ceil(COLUMNS))
        .into_par_iter()
        .map(|part| {
            let first = part * COLUMNS;
            let many = COLUMNS.min(columns - first);
            let mut out = vec![0.0; rows * many];
            let right = (&b[first * vb.column_stride..], View { columns: many, ..vb });
            product((&mut out, View::new(rows, many)), (a, va), right, false);
            out
        })
        .collect();
    out.par_chunks_exact_mut(columns.max(1)).enumerate().for_each(|(row, out)| {
        for (out, part) in out.chunks_mut(COLUMNS).zip(&parts) {
            out.copy_from_slice(&part[row * out.len()..][..out.len()]);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_views_equals_the_plain_sums() {
        let a: Vec<f32> = (0..40).map(|i| (i % 7) as f32 - 3.0).collect();
        let b: Vec<f32> = (0..40).map(|i| (i % 5) as f32 - 2.0).collect();
        // a: 3 rows of 4 out of rows of 6; b: the transpose of 2 rows of 4 out of rows of 5.
        let (va, vb) = (View::strided(3, 4, 6), View::strided(2, 4, 5).transposed());
        for adds in [false, true] {
            let mut out = vec![9.0; 3 * 4];
            product((&mut out, View::strided(3, 2, 4)), (&a, va), (&b, vb), adds);
            for i in 0..3 {
                for j in 0..2 {
                    let plain: f32 = (0..4).map(|k| a[i * 6 + k] * b[j * 5 + k]).sum();
                    assert_eq!(out[i * 4 + j], plain + if adds { 9.0 } else { 0.0 });
                }
                // What lies between the rows of the result stays.
                assert_eq!(out[i * 4 + 2..i * 4 + 4], [9.0, 9.0]);
            }
        }
    }

    #[test]
    fn columns_that_threads_share_out_are_those_of_one_product() {
        let (rows, inner, columns) = (5, 7, 2 * COLUMNS + 3);
        let a: Vec<f32> = (0..rows * inner).map(|i| (i % 11) as f32 - 5.0).collect();
        let b: Vec<f32> = (0..inner * columns).map(|i| (i % 13) as f32 - 6.0).collect();
        let left = View::new(rows, inner);
        for right in [View::new(inner, columns), View::new(columns, inner).transposed()] {
            let (mut whole, mut shared) = (vec![0.0; rows * columns], vec![1.0; rows * columns]);
            product((&mut whole, View::new(rows, columns)), (&a, left), (&b, right), false);
            shared_product(&mut shared, (&a, left), (&b, right));
            assert_eq!(whole, shared);
        }
    }
}
