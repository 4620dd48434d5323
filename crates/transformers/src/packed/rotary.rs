//! Rotary positions (Su et al. 2021) of packed rows.

use sporran_kernels::Rows;

use super::layers::Machine;

/// The cosines and sines of positions' angles: (positions, half the width of a head) each.
pub(super) struct Rotations {
    cos: Vec<f32>,
    sin: Vec<f32>,
    half: usize,
    /// Whether the two of a pair that is turned together lie side by side.
    turns_neighbours: bool,
}

impl Rotations {
    /// Those of `positions`; `steps` has the factors from a position to its angles.
    pub(super) fn new(steps: &[f32], positions: impl Iterator<Item = usize>, turns_neighbours: bool) -> Self {
        let (cos, sin) = positions
            .flat_map(|position| steps.iter().map(move |step| position as f32 * step))
            .map(|angle| (angle.cos(), angle.sin()))
            .unzip();
        Self { cos, sin, half: steps.len(), turns_neighbours }
    }

    /// Turns the first `columns` values of each row, head after head, by the angles in its place.
    pub(super) fn turn(&self, machine: &Machine, inputs: &mut Rows, columns: usize, places: &[usize]) {
        let blocks: Vec<_> = (0..inputs.count()).map(|row| row..row + 1).collect();
        let width = inputs.width();
        inputs.each_part(machine.core.pool, &blocks, width, &|row, _, mut part| {
            let [cos, sin] =
                [&self.cos, &self.sin].map(|values| &values[places[row] * self.half..][..self.half]);
            let turn = if self.turns_neighbours { turn_neighbours } else { turn };
            turn(&mut part.row_mut(0)[..columns], 2 * self.half, cos, sin);
        });
    }
}

/// Turns the pairs of each of `heads`, which are `width` wide, by angles of these cosines and sines. A head may have values
/// after the pairs, which stay.
#[inline(always)]
pub(super) fn turn(heads: &mut [f32], width: usize, cos: &[f32], sin: &[f32]) {
    let pairs = cos.len();
    for head in heads.chunks_exact_mut(width) {
        let (first, second) = head[..2 * pairs].split_at_mut(pairs);
        for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}

/// The same for pairs that lie side by side.
#[inline(always)]
pub(super) fn turn_neighbours(heads: &mut [f32], width: usize, cos: &[f32], sin: &[f32]) {
    for head in heads.chunks_exact_mut(width) {
        for ((pair, cos), sin) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
            (pair[0], pair[1]) = (pair[0] * cos - pair[1] * sin, pair[1] * cos + pair[0] * sin);
        }
    }
}
