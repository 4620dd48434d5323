//! The matrices that heads of recurrent layers keep: (width of a key, width of a value) each.

use std::sync::Mutex;

/// The parts of sequences' states: the window of the convolution, then the matrices of all heads, each with `size` values.
/// Threads that work on different heads take different matrices, so that no lock ever waits.
pub(super) fn split<'s>(
    states: &'s mut [&mut [f32]],
    window: usize,
    size: usize,
) -> (Vec<&'s mut [f32]>, Vec<Mutex<&'s mut [f32]>>) {
    let (windows, matrices): (Vec<_>, Vec<_>) =
        states.iter_mut().map(|state| state.split_at_mut(window)).unzip();
    (windows, matrices.into_iter().flat_map(|all| all.chunks_exact_mut(size)).map(Mutex::new).collect())
}

/// Lets `matrix` decay to the part `left`, adds the product of a key and of `new` values, and writes what it has for the query to
/// `out`.
pub(super) fn store_and_read(
    matrix: &mut [f32],
    left: f32,
    [key, query]: [&[f32]; 2],
    new: &[f32],
    out: &mut [f32],
) {
    out.fill(0.0);
    for ((row, key), query) in matrix.chunks_exact_mut(new.len()).zip(key).zip(query) {
        for ((kept, new), out) in row.iter_mut().zip(new).zip(&mut *out) {
            *kept = left * *kept + key * new;
            *out += query * *kept;
        }
    }
}

/// Writes what `matrix` has for a key to `out`.
pub(super) fn read(matrix: &[f32], key: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    for (row, key) in matrix.chunks_exact(out.len()).zip(key) {
        out.iter_mut().zip(row).for_each(|(sum, value)| *sum += key * value);
    }
}

/// `ln(1 + exp(x))`
pub(super) fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::{read, softplus, store_and_read};

    #[test]
    fn what_is_stored_for_a_key_is_read_and_decays() {
        let (mut matrix, mut out) = (vec![0.0; 6], [0.0; 2]);
        store_and_read(&mut matrix, 0.5, [&[1.0, 0.0, 2.0], &[1.0, 1.0, 0.0]], &[3.0, 5.0], &mut out);
        assert_eq!((out, &matrix[..]), ([3.0, 5.0], &[3.0, 5.0, 0.0, 0.0, 6.0, 10.0][..]));
        store_and_read(&mut matrix, 0.5, [&[0.0, 1.0, 0.0], &[1.0, 1.0, 1.0]], &[1.0, 1.0], &mut out);
        assert_eq!(out, [5.5, 8.5]);
        read(&matrix, &[0.0, 2.0, 0.0], &mut out);
        assert_eq!(out, [2.0, 2.0]);
    }

    #[test]
    fn great_rates_stay_finite() {
        assert_eq!((softplus(200.0), softplus(-200.0)), (200.0, 0.0));
        assert!((softplus(0.0) - 2f32.ln()).abs() < 1e-7);
    }
}
