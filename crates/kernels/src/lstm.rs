//! LSTM cells (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000), one row at a time.
//!
//! A row has four gates of the width of the cells, in PyTorch's order: input, forget, candidate, output.

use crate::{
    isa::{Isa, dispatch},
    math::{exp, tanh},
    simd::Simd,
};

#[inline(always)]
fn sigmoid<S: Simd>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<S>(-x))
}

/// One step: replaces the gates' inputs by their values, updates `cells` to the next state, and writes the
/// hidden state to `out`.
///
/// # Panics
/// If the lengths do not match.
pub fn lstm_step(isa: Isa, gates: &mut [f32], cells: &mut [f32], out: &mut [f32]) {
    #[inline(always)]
    fn body<S: Simd>(gates: &mut [f32], cells: &mut [f32], out: &mut [f32]) {
        let width = cells.len();
        let (input, rest) = gates.split_at_mut(width);
        let (forget, rest) = rest.split_at_mut(width);
        let (candidate, output) = rest.split_at_mut(width);
        // One loop a function, so that the compiler vectorises one formula at a time.
        input.iter_mut().for_each(|x| *x = sigmoid::<S>(*x));
        forget.iter_mut().for_each(|x| *x = sigmoid::<S>(*x));
        candidate.iter_mut().for_each(|x| *x = tanh::<S>(*x));
        output.iter_mut().for_each(|x| *x = sigmoid::<S>(*x));
        for (((cell, input), forget), candidate) in
            cells.iter_mut().zip(&*input).zip(&*forget).zip(&*candidate)
        {
            *cell = S::mul_add(*forget, *cell, input * candidate);
        }
        for ((out, cell), output) in out.iter_mut().zip(&*cells).zip(&*output) {
            *out = output * tanh::<S>(*cell);
        }
    }
    assert!(gates.len() == 4 * cells.len() && out.len() == cells.len());
    dispatch!(isa, body(gates: &mut [f32], cells: &mut [f32], out: &mut [f32]));
}

/// The backward pass of a step. `before` and `cells` are the states before and after it. `to_out` is the
/// gradient of its result, and `to_cells` that of the state after it from later steps. `gates` becomes the
/// gradient of the gates' inputs, and `to_cells` that of the state before.
///
/// # Panics
/// If the lengths do not match.
pub fn lstm_step_back(
    isa: Isa,
    gates: &mut [f32],
    before: &[f32],
    cells: &[f32],
    to_out: &[f32],
    to_cells: &mut [f32],
) {
    #[inline(always)]
    fn body<S: Simd>(gates: &mut [f32], before: &[f32], cells: &[f32], to_out: &[f32], to_cells: &mut [f32]) {
        let width = cells.len();
        let (input, rest) = gates.split_at_mut(width);
        let (forget, rest) = rest.split_at_mut(width);
        let (candidate, output) = rest.split_at_mut(width);
        for at in 0..width {
            let (i, f, g, o) = (input[at], forget[at], candidate[at], output[at]);
            let squashed = tanh::<S>(cells[at]);
            let to_cell = S::mul_add(to_out[at] * o, 1.0 - squashed * squashed, to_cells[at]);
            input[at] = to_cell * g * i * (1.0 - i);
            forget[at] = to_cell * before[at] * f * (1.0 - f);
            candidate[at] = to_cell * i * (1.0 - g * g);
            output[at] = to_out[at] * squashed * o * (1.0 - o);
            to_cells[at] = to_cell * f;
        }
    }
    let width = cells.len();
    assert!(gates.len() == 4 * width && before.len() == width);
    assert!(to_out.len() == width && to_cells.len() == width);
    dispatch!(isa, body(
        gates: &mut [f32],
        before: &[f32],
        cells: &[f32],
        to_out: &[f32],
        to_cells: &mut [f32],
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 37;

    fn wave(count: usize, pace: f64) -> Vec<f32> {
        (0..count).map(|at| ((at as f64 + 0.5) * pace).sin() as f32 * 2.0).collect()
    }

    /// A step in f64: the cells and the result.
    fn plain(gates: &[f64], cells: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let width = cells.len();
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let cells: Vec<f64> = (0..width)
            .map(|at| {
                sigmoid(gates[width + at]) * cells[at] + sigmoid(gates[at]) * gates[2 * width + at].tanh()
            })
            .collect();
        let out = (0..width).map(|at| sigmoid(gates[3 * width + at]) * cells[at].tanh()).collect();
        (cells, out)
    }

    #[test]
    fn a_step_is_what_its_formulas_say() {
        let (sums, start) = (wave(4 * WIDTH, 0.7), wave(WIDTH, 1.9));
        let wide = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect::<Vec<_>>();
        let (expected_cells, expected) = plain(&wide(&sums), &wide(&start));
        for isa in Isa::available() {
            let (mut gates, mut cells, mut out) = (sums.clone(), start.clone(), vec![0.0; WIDTH]);
            lstm_step(isa, &mut gates, &mut cells, &mut out);
            for at in 0..WIDTH {
                assert!((f64::from(cells[at]) - expected_cells[at]).abs() < 1e-5, "{isa:?}");
                assert!((f64::from(out[at]) - expected[at]).abs() < 1e-5, "{isa:?}");
            }
        }
    }

    #[test]
    fn the_way_back_has_the_slopes_that_differences_show() {
        let (sums, start) = (wave(4 * WIDTH, 0.7), wave(WIDTH, 1.9));
        let (to_out, to_after) = (wave(WIDTH, 0.3), wave(WIDTH, 2.3));
        let wide = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect::<Vec<_>>();
        let loss = |gates: &[f64], cells: &[f64]| {
            let (cells, out) = plain(gates, cells);
            let dot = |a: &[f64], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * f64::from(*b)).sum::<f64>();
            dot(&out, &to_out) + dot(&cells, &to_after)
        };
        for isa in Isa::available() {
            let (mut gates, mut cells, mut out) = (sums.clone(), start.clone(), vec![0.0; WIDTH]);
            lstm_step(isa, &mut gates, &mut cells, &mut out);
            let mut to_cells = to_after.clone();
            lstm_step_back(isa, &mut gates, &start, &cells, &to_out, &mut to_cells);
            let step = 1e-5;
            for at in 0..5 * WIDTH {
                let slope = |sign: f64| {
                    let (mut gates, mut cells) = (wide(&sums), wide(&start));
                    match at.checked_sub(4 * WIDTH) {
                        Some(at) => cells[at] += sign * step,
                        None => gates[at] += sign * step,
                    }
                    loss(&gates, &cells)
                };
                let expected = (slope(1.0) - slope(-1.0)) / (2.0 * step);
                let found = at.checked_sub(4 * WIDTH).map_or_else(|| gates[at], |at| to_cells[at]);
                assert!((f64::from(found) - expected).abs() < 2e-5, "{isa:?} {at}: {found} {expected}");
            }
        }
    }
}
