//! Matrix products between slices, without allocations.

use gemm::{Parallelism, gemm};

/// A matrix inside a slice: where it starts, its size, and how far apart neighbours are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) offset: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
}

impl View {
    /// Rows of `stride` values, of which the first `columns` are looked at.
    pub(crate) fn rows(offset: usize, rows: usize, columns: usize, stride: usize) -> Self {
        Self { offset, rows, columns, row_stride: stride, column_stride: 1 }
    }

    pub(crate) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
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

/// `out = scale * a b`, on the threads of the rayon pool that the caller is in.
pub(crate) fn product(out: (&mut [f32], View), a: (&[f32], View), b: (&[f32], View), scale: f32) {
    let threads = rayon::current_num_threads();
    let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
    run(out, a, b, scale, false, parallelism);
}

/// `out += a b`, on the same threads.
pub(crate) fn add_product(out: (&mut [f32], View), a: (&[f32], View), b: (&[f32], View)) {
    let threads = rayon::current_num_threads();
    let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
    run(out, a, b, 1.0, true, parallelism);
}

/// `out = a b` on the caller's thread alone, for a caller that is one of several.
pub(crate) fn product_alone(out: (&mut [f32], View), a: (&[f32], View), b: (&[f32], View)) {
    run(out, a, b, 1.0, false, Parallelism::None);
}

fn run(
    (out, o): (&mut [f32], View),
    (a, va): (&[f32], View),
    (b, vb): (&[f32], View),
    scale: f32,
    adds: bool,
    parallelism: Parallelism,
) {
    assert_eq!((o.rows, o.columns, va.columns), (va.rows, vb.columns, vb.rows), "sizes of a product");
    assert!(o.end() <= out.len() && va.end() <= a.len() && vb.end() <= b.len(), "a view leaves its slice");
    // Distinct elements of the result must not share a place, or the kernel would write it twice.
    assert!(o.column_stride == 1 && (o.rows <= 1 || o.row_stride >= o.columns), "overlapping result");
    if o.rows == 0 || o.columns == 0 {
        return;
    }
    // SAFETY: the assertions above prove that every element that the three views reach lies inside its slice and
    // that the result's elements do not overlap; `out` is borrowed exclusively, so it aliases neither operand.
    unsafe {
        gemm(
            o.rows,
            o.columns,
            va.columns,
            out.as_mut_ptr().add(o.offset),
            o.column_stride as isize,
            o.row_stride as isize,
            adds,
            a.as_ptr().add(va.offset),
            va.column_stride as isize,
            va.row_stride as isize,
            b.as_ptr().add(vb.offset),
            vb.column_stride as isize,
            vb.row_stride as isize,
            if adds { 1.0 } else { 0.0 },
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_views_equals_the_plain_sums() {
        let a: Vec<f32> = (0..40).map(|i| (i % 7) as f32 - 3.0).collect();
        let b: Vec<f32> = (0..40).map(|i| (i % 5) as f32 - 2.0).collect();
        // a: 3 rows of 4 out of rows of 6; b: the transpose of 2 rows of 4 out of rows of 5.
        let (va, vb) = (View::rows(1, 3, 4, 6), View::rows(2, 2, 4, 5).transposed());
        let mut out = vec![9.0; 3 * 4];
        product((&mut out, View::rows(0, 3, 2, 4)), (&a, va), (&b, vb), 0.5);
        for i in 0..3 {
            for j in 0..2 {
                let plain: f32 = (0..4).map(|k| a[1 + i * 6 + k] * b[2 + j * 5 + k]).sum();
                assert_eq!(out[i * 4 + j], 0.5 * plain);
            }
            // What lies between the rows of the result stays.
            assert_eq!(out[i * 4 + 2..i * 4 + 4], [9.0, 9.0]);
        }
    }

    #[test]
    fn a_product_is_added_to_what_is_there() {
        let (a, b) = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]);
        let (va, vb) = (View::rows(0, 1, 3, 3), View::rows(0, 1, 3, 3).transposed());
        let mut out = [1.0];
        add_product((&mut out, View::rows(0, 1, 1, 1)), (&a, va), (&b, vb));
        // 1 + 4 + 10 + 18
        assert_eq!(out, [33.0]);
        product_alone((&mut out, View::rows(0, 1, 1, 1)), (&a, va), (&b, vb));
        assert_eq!(out, [32.0]);
    }

    #[test]
    #[should_panic(expected = "leaves its slice")]
    fn a_view_outside_its_slice_is_refused() {
        let a = [0.0; 5];
        product(
            (&mut [0.0; 4], View::rows(0, 2, 2, 2)),
            (&a, View::rows(0, 2, 3, 3)),
            (&[0.0; 6], View::rows(0, 3, 2, 2)),
            1.0,
        );
    }
}
