//! Rotary positions (Su et al. 2021) of packed rows.

use sporran_kernels::Rows;

use super::layers::Machine;

/// The cosines and sines of positions' angles: (positions, half the width of a head) each.
pub(super) struct Rotations {
    cos: Vec<f32>,
    sin: Vec<f32>,
    half: usize,
}

impl Rotations {
    /// Those of `positions`; `steps` has the factors from a position to its angles.
    pub(super) fn new(steps: &[f32], positions: impl Iterator<Item = usize>) -> Self {
        let (cos, sin) = positions
            .flat_map(|position| steps.iter().map(move |step| position as f32 * step))
            .map(|angle| (angle.cos(), angle.sin()))
            .unzip();
        Self { cos, sin, half: steps.len() }
    }

    /// Turns the first `columns` values of each row, head after head, by the angles in its place.
    pub(super) fn turn(&self, machine: &Machine, inputs: &mut Rows, columns: usize, places: &[usize]) {
        let blocks: Vec<_> = (0..inputs.count()).map(|row| row..row + 1).collect();
        let width = inputs.width();
        inputs.each_part(machine.core.pool, &blocks, width, &|row, _, mut part| {
            let turned = &mut part.row_mut(0)[..columns];
            let cos = &self.cos[places[row] * self.half..][..self.half];
            let sin = &self.sin[places[row] * self.half..][..self.half];
            for head in turned.chunks_exact_mut(2 * self.half) {
                let (first, second) = head.split_at_mut(self.half);
                for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                    (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                }
            }
        });
    }
}
