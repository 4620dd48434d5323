//! Long rows of which a few values are kept, and what such rows are multiplied with.

use crate::{
    isa::{Isa, dispatch},
    math::sum,
    simd::{LANES, Simd},
};

/// Values that are looked at together where one of them may be kept.
const RUN: usize = 16;
/// Such runs that are passed over together.
const RUNS: usize = 8;

/// Draws some of a row's values, as many as `count` on average at most, so that what is kept is on average the row: a value whose share
/// of all sizes is at least one in `count` is kept as it is, another with a probability of `count` times its share, at that size.
///
/// Which are kept hangs on one number, `offset`, from 0 to below 1: the sizes are laid end to end and marked at equal distances from it on
/// (systematic sampling; Madow and Madow, 1944), so that two draws of a row differ less than independent ones would.
///
/// Gives places with values, ascending.
///
/// # Panics
/// Where `count` is 0 or the row has more than 2^32 values.
#[must_use]
pub fn draw(isa: Isa, row: &[f32], count: usize, offset: f32) -> Vec<(u32, f32)> {
    #[inline(always)]
    fn body<S: Simd>(row: &[f32], count: usize, offset: f32) -> Vec<(u32, f32)> {
        let total: f64 = row.chunks(4096).map(|part| f64::from(sum(part, f32::abs))).sum();
        let step = total / count as f64;
        let mut kept = Vec::with_capacity(2 * count);
        let (mut passed, mut next) = (0f64, f64::from(offset) * step);
        for (block, values) in row.chunks(RUN * RUNS).enumerate() {
            let size = f64::from(sum(values, f32::abs));
            // The next mark is within a step, so no value here is as large as one.
            if passed + size < next {
                passed += size;
                continue;
            }
            for (run, values) in values.chunks(RUN).enumerate() {
                let size = f64::from(values.iter().map(|value| value.abs()).sum::<f32>());
                if passed + size < next {
                    passed += size;
                    continue;
                }
                let first = (block * RUNS + run) * RUN;
                for (place, value) in (first..).zip(values) {
                    let size = f64::from(value.abs());
                    if size >= step {
                        if size > 0.0 {
                            kept.push((place as u32, *value));
                        }
                        continue;
                    }
                    passed += size;
                    if passed > next {
                        kept.push((place as u32, (step as f32).copysign(*value)));
                        next += step;
                    }
                }
            }
        }
        kept
    }
    assert!(count > 0 && u32::try_from(row.len()).is_ok());
    dispatch!(isa, body(row: &[f32], count: usize, offset: f32) -> Vec<(u32, f32)>)
}

/// Adds rows up, each times its weight: `out = sum w_i rows[i]` over `weighted`, in that order. All rows are as long as `out`.
///
/// # Panics
/// For a row that is not there.
pub fn weighted_sum(isa: Isa, weighted: &[(u32, f32)], rows: &[f32], out: &mut [f32]) {
    #[inline(always)]
    fn body<S: Simd>(weighted: &[(u32, f32)], rows: &[f32], out: &mut [f32]) {
        let width = out.len();
        let whole = width / LANES * LANES;
        let mut first = 0;
        while first < whole {
            // SAFETY: `dispatch` has checked that the machine has `S`; every row is there, by the assertion below, and has these columns.
            unsafe {
                if whole - first >= 2 * LANES {
                    blocks::<S, 2>(weighted, rows, (width, first), out);
                    first += 2 * LANES;
                } else {
                    blocks::<S, 1>(weighted, rows, (width, first), out);
                    first += LANES;
                }
            }
        }
        if whole < width {
            let out = &mut out[whole..];
            out.fill(0.0);
            for (row, weight) in weighted {
                let values = &rows[*row as usize * width + whole..][..out.len()];
                for (out, value) in out.iter_mut().zip(values) {
                    *out = S::mul_add(*weight, *value, *out);
                }
            }
        }
    }
    let count = if out.is_empty() { 0 } else { rows.len() / out.len() };
    assert!(out.is_empty() || weighted.iter().all(|(row, _)| (*row as usize) < count));
    dispatch!(isa, body(weighted: &[(u32, f32)], rows: &[f32], out: &mut [f32]));
}

/// `N` times 32 columns of the sum, from number `first` on.
///
/// # Safety
/// The machine must have `S`; each row of `weighted` must be in `rows`, whose rows have `width` values, as `out` has; `first` must be
/// followed by as many columns.
#[inline(always)]
unsafe fn blocks<S: Simd, const N: usize>(
    weighted: &[(u32, f32)],
    rows: &[f32],
    (width, first): (usize, usize),
    out: &mut [f32],
) {
    // SAFETY: the contract.
    unsafe {
        let mut sums = [S::zero_floats(); N];
        for (row, weight) in weighted {
            let from = rows.as_ptr().add(*row as usize * width + first);
            for (block, sum) in sums.iter_mut().enumerate() {
                *sum = S::add_product(*sum, *weight, S::load_floats(from.add(block * LANES)));
            }
        }
        for (block, sum) in sums.into_iter().enumerate() {
            S::store_floats(out.as_mut_ptr().add(first + block * LANES), sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few large values of both signs among many small ones, and zeros.
    fn row() -> Vec<f32> {
        (0..1000)
            .map(|at| match at % 250 {
                7 => -3.0,
                100 => 1.5,
                at if at < 20 => 0.0,
                at => 0.001 * (at % 9) as f32 - 0.004,
            })
            .collect()
    }

    #[test]
    fn what_is_drawn_is_the_row_on_average() {
        let row = row();
        let (count, draws) = (40, 4000);
        let total: f32 = row.iter().map(|value| value.abs()).sum();
        let step = total / count as f32;
        for isa in Isa::available() {
            let mut means = vec![0f64; row.len()];
            for at in 0..draws {
                let kept = draw(isa, &row, count, at as f32 / draws as f32);
                assert!(kept.len() <= count + 1 && kept.is_sorted_by(|a, b| a.0 < b.0), "{isa:?}");
                for (place, value) in kept {
                    means[place as usize] += f64::from(value) / f64::from(draws);
                }
            }
            for (mean, value) in means.iter().zip(&row) {
                // Offsets at equal distances tell each probability to one draw.
                let slack = if value.abs() < step { f64::from(step) * 2.0 / f64::from(draws) } else { 1e-6 };
                assert!((mean - f64::from(*value)).abs() <= slack, "{isa:?}: {mean} {value}");
            }
        }
    }

    #[test]
    fn the_same_values_are_drawn_on_every_set() {
        let row = row();
        let expected = draw(Isa::Portable, &row, 200, 0.37);
        assert!(expected.len() > 20);
        for isa in Isa::available() {
            let found = draw(isa, &row, 200, 0.37);
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                assert!(found.0 == expected.0 && (found.1 - expected.1).abs() < 1e-6, "{isa:?}");
            }
        }
        assert_eq!(draw(Isa::Portable, &[0.0; 40], 5, 0.5), []);
        assert_eq!(draw(Isa::Portable, &[], 5, 0.5), []);
    }

    #[test]
    fn weighted_rows_add_up() {
        for width in [1, 31, 32, 64, 97, 160] {
            let rows: Vec<f32> = (0..7 * width).map(|at| (at % 13) as f32 - 6.0).collect();
            let weighted = [(3, 0.5), (0, -1.0), (6, 2.0), (3, 0.25)];
            let expected: Vec<f32> = (0..width)
                .map(|at| {
                    weighted.iter().map(|(row, weight)| weight * rows[*row as usize * width + at]).sum()
                })
                .collect();
            for isa in Isa::available() {
                let mut out = vec![9.0; width];
                weighted_sum(isa, &weighted, &rows, &mut out);
                assert_eq!(out, expected, "{isa:?} {width}");
                weighted_sum(isa, &[], &rows, &mut out);
                assert!(out.iter().all(|value| *value == 0.0));
            }
        }
    }
}
