//! Matrix products between slices.

use sporran_kernels::{Isa, Scaled, TrainingPrecision, multiply_matrices};

pub(crate) use sporran_kernels::View;

/// Computes `out = a b`, or `out += a b` if `adds`, in 32 bits on the caller's thread.
///
/// # Panics
/// If the sizes do not match or a view exceeds its slice.
pub(crate) fn product(out: (&mut [f32], View), a: (&[f32], View), b: (&[f32], View), adds: bool) {
    product_in(TrainingPrecision::F32, out, a, b, adds);
}

/// The same in another precision.
///
/// # Panics
/// As [`product`].
pub(crate) fn product_in(
    precision: TrainingPrecision,
    out: (&mut [f32], View),
    a: (&[f32], View),
    b: (&[f32], View),
    adds: bool,
) {
    multiply_matrices(Isa::detected(), 1, precision, out, a, b, Scaled { scale: 1.0, adds });
}

/// The same on all threads.
///
/// # Panics
/// As [`product`].
pub(crate) fn shared_product_in(
    precision: TrainingPrecision,
    out: (&mut [f32], View),
    a: (&[f32], View),
    b: (&[f32], View),
    adds: bool,
) {
    let threads = rayon::current_num_threads();
    multiply_matrices(Isa::detected(), threads, precision, out, a, b, Scaled { scale: 1.0, adds });
}

/// The same where `out` has row after row.
///
/// # Panics
/// As [`product`].
pub(crate) fn shared_product(
    precision: TrainingPrecision,
    out: &mut [f32],
    a: (&[f32], View),
    b: (&[f32], View),
    adds: bool,
) {
    shared_product_in(precision, (out, View::packed(a.1.rows, b.1.columns)), a, b, adds);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_threads_share_out_are_those_of_one_product() {
        let (rows, inner, columns) = (5, 7, 515);
        let a: Vec<f32> = (0..rows * inner).map(|i| (i % 11) as f32 - 5.0).collect();
        let b: Vec<f32> = (0..inner * columns).map(|i| (i % 13) as f32 - 6.0).collect();
        let left = View::packed(rows, inner);
        for right in [View::packed(inner, columns), View::packed(columns, inner).transposed()] {
            let (mut whole, mut shared) = (vec![0.0; rows * columns], vec![1.0; rows * columns]);
            product((&mut whole, View::packed(rows, columns)), (&a, left), (&b, right), false);
            shared_product(TrainingPrecision::F32, &mut shared, (&a, left), (&b, right), false);
            assert_eq!(whole, shared);
        }
    }
    #[test]
    fn equal_rows_have_equal_products() {
        // Entities with equal vectors tie wherever they are: in a whole tile, after it, or in another thread's part.
        for (inner, columns) in [(1, 3), (7, 31), (32, 33), (100, 515), (33, 4099)] {
            let value = |i: usize| ((i * 37 % 23) as f32 - 11.0) / 7.0;
            let b: Vec<f32> = (0..inner).map(value).collect::<Vec<_>>().repeat(columns);
            let a: Vec<f32> = (0..3 * inner).map(|i| value(i + 5)).collect();
            let (left, right) = (View::packed(3, inner), View::packed(columns, inner).transposed());
            let (mut one, mut shared) = (vec![0.0; 3 * columns], vec![0.0; 3 * columns]);
            product((&mut one, View::packed(3, columns)), (&a, left), (&b, right), false);
            shared_product(TrainingPrecision::F32, &mut shared, (&a, left), (&b, right), false);
            for row in one.chunks(columns).chain(shared.chunks(columns)) {
                assert!(row.iter().all(|score| score.to_bits() == row[0].to_bits()), "{inner} x {columns}");
            }
        }
    }
}
