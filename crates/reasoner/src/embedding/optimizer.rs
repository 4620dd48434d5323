//! Optimisers.

use half::f16;
use rayon::prelude::*;
use sporran_kernels::{AdagradStep, AdamStep, Isa};

use super::training_options::OptimizerKind;

/// The number of values in one work unit.
pub(super) const PIECE: usize = 1 << 15;
/// The usual constants of Adagrad and Adam.
const ADAGRAD_EPSILON: f32 = 1e-10;
const BETAS: (f32, f32) = (0.9, 0.999);
const ADAM_EPSILON: f32 = 1e-8;

/// The optimiser state of a parameter: for Adagrad one number a value, for Adam two.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    pub(crate) first: Vec<f32>,
    /// Empty for Adagrad.
    pub(crate) second: Vec<f32>,
}

impl State {
    pub(crate) fn new(kind: OptimizerKind, count: usize) -> Self {
        let second = if kind == OptimizerKind::Adam { count } else { 0 };
        Self { first: vec![0.0; count], second: vec![0.0; second] }
    }

    /// Splits the state at the same positions as the values.
    pub(crate) fn pieces(
        &mut self,
        size: usize,
    ) -> impl IndexedParallelIterator<Item = (&mut [f32], &mut [f32])> {
        let count = self.first.len().div_ceil(size);
        let mut second = self.second.chunks_mut(size);
        let second: Vec<&mut [f32]> = (0..count).map(|_| second.next().unwrap_or_default()).collect();
        self.first.par_chunks_mut(size).zip(second)
    }
}

/// One step of an optimiser.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Adagrad(AdagradStep),
    Adam(AdamStep),
}

impl Step {
    /// Step `step`, counted from 1.
    pub(crate) fn new(kind: OptimizerKind, rate: f64, step: u64) -> Self {
        match kind {
            OptimizerKind::Adagrad => {
                Self::Adagrad(AdagradStep { rate: rate as f32, epsilon: ADAGRAD_EPSILON })
            }
            OptimizerKind::Adam => {
                let scale = |beta: f32| (1.0 / (1.0 - f64::from(beta).powf(step as f64))) as f32;
                Self::Adam(AdamStep {
                    beta1: BETAS.0,
                    beta2: BETAS.1,
                    epsilon: ADAM_EPSILON,
                    rate: rate as f32,
                    keep: 1.0,
                    first_scale: scale(BETAS.0),
                    second_scale: scale(BETAS.1),
                })
            }
        }
    }

    pub(crate) fn update(&self, values: &mut [f32], gradient: &[f32], first: &mut [f32], second: &mut [f32]) {
        let isa = Isa::detected();
        match self {
            Self::Adagrad(step) => step.update(isa, values, gradient, first),
            Self::Adam(step) => step.update(isa, values, gradient, first, second),
        }
    }

    /// Updates a whole parameter.
    pub(crate) fn dense(&self, values: &mut [f32], gradient: &[f32], state: &mut State) {
        let pieces = values.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE)).zip(state.pieces(PIECE));
        pieces.for_each(|((values, gradient), (first, second))| self.update(values, gradient, first, second));
    }

    /// Updates some rows, ascending.
    pub(crate) fn sparse(
        &self,
        width: usize,
        values: &mut [f32],
        rows: &[u32],
        gradient: &[f32],
        state: &mut State,
    ) {
        let values = picked(values, width, rows);
        let first = picked(&mut state.first, width, rows);
        let second = picked(&mut state.second, width, rows);
        let work = values.into_par_iter().zip(first).zip(second).zip(gradient.par_chunks_exact(width));
        work.for_each(|(((values, first), second), gradient)| self.update(values, gradient, first, second));
    }

    /// Updates some 16-bit rows, ascending. A value between two representable ones is rounded at random to
    /// either, so that the expected value is exact. `seed` and the position decide.
    pub(crate) fn sparse_halves(
        &self,
        width: usize,
        values: &mut [f16],
        rows: &[u32],
        gradient: &[f32],
        state: &mut State,
        seed: u64,
    ) {
        let values = picked(values, width, rows);
        let first = picked(&mut state.first, width, rows);
        let second = picked(&mut state.second, width, rows);
        let work =
            values.into_par_iter().zip(rows).zip(first).zip(second).zip(gradient.par_chunks_exact(width));
        work.for_each(|((((values, row), first), second), gradient)| {
            let mut wide: Vec<f32> = values.iter().map(|value| value.to_f32()).collect();
            self.update(&mut wide, gradient, first, second);
            let mut state = seed ^ (u64::from(*row) << 20);
            for (value, wide) in values.iter_mut().zip(wide) {
                // SplitMix64 (Steele et al., 2014).
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut chance = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                chance = (chance ^ (chance >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                *value = rounded(wide, (chance >> 40) as f32 / (1u64 << 24) as f32);
            }
        });
    }
}

/// Rounds `value` to one of its two neighbours in 16 bits. `chance` is from 0 to below 1.
fn rounded(value: f32, chance: f32) -> f16 {
    let near = f16::from_f32(value);
    let gap = value - near.to_f32();
    if gap == 0.0 || !near.is_finite() {
        return near;
    }
    let bits = near.to_bits();
    let away = (gap > 0.0) == (near.to_f32() >= 0.0);
    let other = f16::from_bits(match bits & 0x7fff {
        0 => {
            if gap > 0.0 {
                1
            } else {
                0x8001
            }
        }
        _ if away => bits + 1,
        _ => bits - 1,
    });
    let share = gap / (other.to_f32() - near.to_f32());
    if chance < share && other.is_finite() { other } else { near }
}

/// Returns mutable rows of a table by index, ascending; nothing for an empty table.
fn picked<'v, T>(values: &'v mut [T], width: usize, rows: &[u32]) -> Vec<&'v mut [T]> {
    if values.is_empty() {
        return rows.iter().map(|_| <&mut [T]>::default()).collect();
    }
    let mut rest = values;
    let mut next = 0;
    rows.iter()
        .map(|&row| {
            let row = row as usize;
            let (_, tail) = std::mem::take(&mut rest).split_at_mut((row - next) * width);
            let (values, tail) = tail.split_at_mut(width);
            (rest, next) = (tail, row + 1);
            values
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_picked_move_as_in_a_whole_update_and_others_stay() {
        for kind in [OptimizerKind::Adagrad, OptimizerKind::Adam] {
            let values: Vec<f32> = (0..12).map(|i| i as f32).collect();
            let gradient: Vec<f32> = (0..12).map(|i| i as f32 - 5.5).collect();
            let step = Step::new(kind, 0.1, 1);
            let (mut whole, mut some) = (values.clone(), values.clone());
            step.dense(&mut whole, &gradient, &mut State::new(kind, 12));
            let picked = [&gradient[3..6], &gradient[9..12]].concat();
            step.sparse(3, &mut some, &[1, 3], &picked, &mut State::new(kind, 12));
            assert_eq!(some[..3], values[..3]);
            assert_eq!(some[3..6], whole[3..6]);
            assert_eq!(some[6..9], values[6..9]);
            assert_eq!(some[9..], whole[9..]);
            // The first step of either optimiser has the size of the learning rate, against the gradient's
            // sign.
            assert!((whole[0] - 0.1).abs() < 1e-6 && (whole[11] - 10.9).abs() < 1e-6);
        }
    }

    #[test]
    fn rounding_by_chance_keeps_the_mean() {
        for value in [0.1f32, -0.1, 1.0003, -3.3, 1e-9, -1e-9, 0.0] {
            let count = 4000;
            let sum: f64 =
                (0..count).map(|i| f64::from(rounded(value, (i as f32 + 0.5) / count as f32).to_f32())).sum();
            let error = (sum / f64::from(count) - f64::from(value)).abs();
            assert!(error <= f64::from(value.abs()) * 1e-5 + 1e-10, "{value}: {}", sum / f64::from(count));
        }
    }

    #[test]
    fn small_steps_in_16_bits_are_not_lost() {
        // Each step is a thousandth of the distance between neighbours of 1 in 16 bits.
        let mut values = vec![f16::from_f32(1.0); 256];
        let step = Step::Adagrad(AdagradStep { rate: 1.0, epsilon: 1.0 });
        for at in 0..1000 {
            let mut state = State::new(OptimizerKind::Adagrad, 256);
            step.sparse_halves(256, &mut values, &[0], &[-1e-6; 256], &mut state, at);
        }
        let mean = values.iter().map(|value| f64::from(value.to_f32())).sum::<f64>() / 256.0;
        assert!((mean - 1.001).abs() < 2e-4, "{mean}");
    }
}
