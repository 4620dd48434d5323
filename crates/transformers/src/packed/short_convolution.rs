//! Convolutions over the last few tokens of each channel.

use std::ops::Range;

use sporran_kernels::Rows;

use super::layers::Machine;

/// Such a convolution.
#[derive(Debug)]
pub(super) struct ShortConvolution {
    /// For each of the tokens that it reads, oldest first, the weights of all channels.
    weights: Vec<f32>,
    /// What is added to the sums of each channel.
    bias: Option<Vec<f32>>,
    channels: usize,
}

impl ShortConvolution {
    /// The convolution of weights (channels, kernel) and a bias.
    pub(super) fn new(stored: &[f32], bias: Option<Vec<f32>>, channels: usize) -> Self {
        let kernel = stored.len() / channels;
        let weight = |at: usize| stored[at % channels * kernel + at / channels];
        Self { weights: (0..stored.len()).map(weight).collect(), bias, channels }
    }

    /// The values of a sequence's window: what it has to know of the tokens before.
    pub(super) fn window(&self) -> usize {
        self.weights.len() - self.channels
    }

    /// Writes the sums of all rows of `input`, whose sequences are `blocks`, to `out`, and finishes each row, of which `finish` is
    /// told the number. Each sequence has a window, which is zeros before its first token and becomes that of its last one.
    pub(super) fn forward(
        &self,
        machine: &Machine,
        input: &Rows,
        blocks: &[Range<usize>],
        windows: &mut [&mut [f32]],
        out: &mut Rows,
        finish: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) {
        let channels = self.channels;
        let before = self.window() / channels;
        out.reshape(input.count(), channels);
        let rows: Vec<Range<usize>> = (0..input.count()).map(|row| row..row + 1).collect();
        let block_of: Vec<usize> =
            blocks.iter().enumerate().flat_map(|(at, block)| block.clone().map(move |_| at)).collect();
        let kept = &*windows;
        out.each_part(machine.core.pool, &rows, channels, &|row, _, mut part| {
            let out = part.row_mut(0);
            let block = block_of[row];
            let position = row - blocks[block].start;
            match &self.bias {
                Some(bias) => out.copy_from_slice(bias),
                None => out.fill(0.0),
            }
            for (at, weights) in self.weights.chunks_exact(channels).enumerate() {
                // The token `before - at` places before this one.
                let values = match (position + at).checked_sub(before) {
                    Some(place) => input.row(blocks[block].start + place),
                    None => &kept[block][(position + at) * channels..][..channels],
                };
                for ((out, weight), value) in out.iter_mut().zip(weights).zip(values) {
                    *out += weight * value;
                }
            }
            finish(row, out);
        });
        for (window, block) in windows.iter_mut().zip(blocks) {
            let new = block.len().min(before);
            window.copy_within(new * channels.., 0);
            let places = window[(before - new) * channels..].chunks_exact_mut(channels);
            for (place, row) in places.zip(block.end - new..block.end) {
                place.copy_from_slice(input.row(row));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sporran_kernels::Rows;

    use super::{Machine, ShortConvolution};

    #[test]
    fn tokens_one_by_one_give_what_they_give_together() {
        let convolution =
            ShortConvolution::new(&[1.0, 10.0, 100.0, 2.0, 20.0, 200.0], Some(vec![0.5, 0.0]), 2);
        let rows = |values: &[[f32; 2]]| {
            let mut rows = Rows::new(values.len(), 2);
            values.iter().enumerate().for_each(|(at, value)| rows.row_mut(at).copy_from_slice(value));
            rows
        };
        let machine = Machine::default();
        // Two sequences, the second of which is shorter than the window.
        let values = [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0], [7.0, 8.0]];
        let mut windows = [vec![0.0; 4], vec![0.0; 4]];
        let mut out = Rows::default();
        let run = |input: &Rows, blocks: &[_], windows: &mut [Vec<f32>], out: &mut Rows| {
            let mut windows: Vec<&mut [f32]> = windows.iter_mut().map(Vec::as_mut_slice).collect();
            convolution.forward(&machine, input, blocks, &mut windows, out, &|_, _| {});
        };
        run(&rows(&values), &[0..3, 3..4], &mut windows, &mut out);
        let expected = [[100.5, 800.0], [210.5, 1080.0], [321.5, 1308.0], [700.5, 1600.0]];
        (0..4).for_each(|row| assert_eq!(out.row(row), expected[row]));
        assert_eq!(windows, [vec![2.0, 5.0, 3.0, 6.0], vec![0.0, 0.0, 7.0, 8.0]]);
        let mut again = [vec![0.0; 4]];
        let block = 0..1;
        for (row, value) in values[..3].iter().enumerate() {
            run(&rows(&[*value]), std::slice::from_ref(&block), &mut again, &mut out);
            assert_eq!(out.row(0), expected[row]);
        }
        assert_eq!(again[0], windows[0]);
    }
}
