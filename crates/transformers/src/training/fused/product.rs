//! Matrix products between slices, without allocations.

use sporran_kernels::{Isa, Scaled, multiply_matrices};

pub(crate) use sporran_kernels::View;

/// `out = scale * a b`, on the threads of the rayon pool that the caller is in.
pub(crate) fn product(out: (&mut [f32], View), a: (&[f32], View), b: (&[f32], View), scale: f32) {
    let threads = rayon::current_num_threads();
    multiply_matrices(Isa::detected(), threads, out, a, b, Scaled { scale, adds: false });
}

/// `out += a b`, on the same threads.
pub(crate) fn add_product(out: (&mut [f32], View), a: (&[f32], View), b: (&[f32], View)) {
    let threads = rayon::current_num_threads();
    multiply_matrices(Isa::detected(), threads, out, a, b, Scaled { scale: 1.0, adds: true });
}

/// `out = a b` on the caller's thread alone, for a caller that is one of several.
pub(crate) fn product_alone(out: (&mut [f32], View), a: (&[f32], View), b: (&[f32], View)) {
    multiply_matrices(Isa::detected(), 1, out, a, b, Scaled { scale: 1.0, adds: false });
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
