//! Matrix products between slices, without allocations.

use std::cell::Cell;

use sporran_kernels::{Isa, Scaled, TrainingPrecision, multiply_matrices};

pub use sporran_kernels::View;

thread_local! {
    static PRECISION: Cell<TrainingPrecision> = const { Cell::new(TrainingPrecision::F32) };
}

/// Restores the precision when dropped.
struct Restore(TrainingPrecision);

impl Drop for Restore {
    fn drop(&mut self) {
        PRECISION.set(self.0);
    }
}

/// Runs `work` with the products of hidden states and weights, and those of their gradients, in `precision`. It applies to
/// products that this thread starts. No layer takes the precision as an argument, as with PyTorch's `autocast`.
pub fn in_precision<T>(precision: TrainingPrecision, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(PRECISION.replace(precision));
    work()
}

/// `out = a b` of states and weights, on the threads of the rayon pool that the caller is in.
pub fn weight_product(out: (&mut [f32], View), a: (&[f32], View), b: (&[f32], View)) {
    multiply(PRECISION.get(), out, a, b, Scaled { scale: 1.0, adds: false });
}

/// `out += a b`, on the same threads.
pub fn add_weight_product(out: (&mut [f32], View), a: (&[f32], View), b: (&[f32], View)) {
    multiply(PRECISION.get(), out, a, b, Scaled { scale: 1.0, adds: true });
}

/// `out = scale * a b` in 32 bits, on the same threads.
pub fn product(out: (&mut [f32], View), a: (&[f32], View), b: (&[f32], View), scale: f32) {
    multiply(TrainingPrecision::F32, out, a, b, Scaled { scale, adds: false });
}

/// `out += scale * a b` in 32 bits, on the same threads.
pub fn add_product(out: (&mut [f32], View), a: (&[f32], View), b: (&[f32], View), scale: f32) {
    multiply(TrainingPrecision::F32, out, a, b, Scaled { scale, adds: true });
}

/// `out = a b` in 32 bits on the caller's thread alone, for a caller that is one of several.
pub fn product_alone(out: (&mut [f32], View), a: (&[f32], View), b: (&[f32], View)) {
    let scaled = Scaled { scale: 1.0, adds: false };
    multiply_matrices(Isa::detected(), 1, TrainingPrecision::F32, out, a, b, scaled);
}

fn multiply(
    precision: TrainingPrecision,
    out: (&mut [f32], View),
    a: (&[f32], View),
    b: (&[f32], View),
    scaled: Scaled,
) {
    multiply_matrices(Isa::detected(), rayon::current_num_threads(), precision, out, a, b, scaled);
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
            // The values between the rows of the result stay.
            assert_eq!(out[i * 4 + 2..i * 4 + 4], [9.0, 9.0]);
        }
    }

    #[test]
    fn a_product_is_added_to_what_is_there() {
        let (a, b) = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]);
        let (va, vb) = (View::rows(0, 1, 3, 3), View::rows(0, 1, 3, 3).transposed());
        let mut out = [1.0];
        add_product((&mut out, View::rows(0, 1, 1, 1)), (&a, va), (&b, vb), 1.0);
        // 1 + 4 + 10 + 18
        assert_eq!(out, [33.0]);
        product_alone((&mut out, View::rows(0, 1, 1, 1)), (&a, va), (&b, vb));
        assert_eq!(out, [32.0]);
        add_weight_product((&mut out, View::rows(0, 1, 1, 1)), (&a, va), (&b, vb));
        assert_eq!(out, [64.0]);
        weight_product((&mut out, View::rows(0, 1, 1, 1)), (&a, va), (&b, vb));
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
