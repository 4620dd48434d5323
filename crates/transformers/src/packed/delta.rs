//! Gated delta rules of packed rows.

use std::{ops::Range, sync::PoisonError};

use sporran_kernels::{Activation, Norm, Rows};

use super::{
    layers::{Linear, Machine},
    memory::{read, softplus, split, store_and_read},
    short_convolution::ShortConvolution,
};
use crate::architectures::llama::{DELTA_LENGTH_EPS, DeltaSizes};

/// A gated delta rule (Yang et al. 2025) without its output projection. Its oracle is that of [`Llama`](crate::Llama).
#[derive(Debug)]
pub(super) struct Delta {
    pub(super) sizes: DeltaSizes,
    /// Queries, keys and values side by side.
    pub(super) inputs: Linear,
    /// The gates of results.
    pub(super) gate: Linear,
    /// For each head of values, how much of a value is stored; then for each how fast stored values decay.
    pub(super) rates: Linear,
    pub(super) convolution: ShortConvolution,
    /// What the convolution's sums go through.
    pub(super) activation: Activation,
    /// The factors of the decay's rate, and what is added to it.
    pub(super) decay: Vec<f32>,
    pub(super) bias: Vec<f32>,
    /// The norm of each head's results.
    pub(super) norm: Norm,
}

/// The vectors of a token in a head.
struct Token<'a> {
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    /// The part of the value that is stored.
    stored: f32,
    /// What is left of the matrix.
    left: f32,
}

impl Delta {
    /// The values of a sequence's state: the window of the convolution, and a matrix for each head of values.
    pub(super) fn state(&self) -> usize {
        self.convolution.window() + self.sizes.key_width * self.sizes.values()
    }

    /// The results of the rows of `source`, whose sequences are `blocks`, each with its state.
    pub(super) fn forward(
        &self,
        machine: &mut Machine,
        source: &Rows,
        blocks: &[Range<usize>],
        states: &mut [&mut [f32]],
        mixed: &mut Rows,
    ) {
        let DeltaSizes { value_heads, key_width, value_width, .. } = self.sizes;
        let (mut windows, matrices) = split(states, self.convolution.window(), key_width * value_width);
        let (mut raw, mut inputs) = (Rows::default(), Rows::default());
        self.inputs.forward(machine, source, &mut raw);
        let rates = self.rates.values(machine, source);
        let isa = machine.core.isa;
        self.convolution.forward(machine, &raw, blocks, &mut windows, &mut inputs, &|_, row| {
            self.activation.forward(isa, row);
            self.scale(row);
        });
        let (keys, each) = (self.sizes.keys(), self.sizes.each());
        mixed.reshape(source.count(), self.sizes.values());
        mixed.each_part(machine.core.pool, blocks, value_width, &|block, head, mut part| {
            let matrix = &matrices[block * value_heads + head];
            let mut matrix = matrix.lock().unwrap_or_else(PoisonError::into_inner);
            let mut new = vec![0.0; value_width];
            for (at, row) in blocks[block].clone().enumerate() {
                let (own, rates) = (inputs.row(row), &rates[row * 2 * value_heads..][..2 * value_heads]);
                let rate = softplus(rates[value_heads + head] + self.bias[head]);
                let token = Token {
                    query: &own[head / each * key_width..][..key_width],
                    key: &own[keys + head / each * key_width..][..key_width],
                    value: &own[2 * keys + head * value_width..][..value_width],
                    stored: 1.0 / (1.0 + (-rates[head]).exp()),
                    left: (-self.decay[head] * rate).exp(),
                };
                let out = part.row_mut(at);
                token.advance(&mut matrix, &mut new, out);
                self.norm.one(isa, out);
            }
        });
        self.gate.multiply(machine, source, Activation::Silu, mixed);
    }

    /// Makes the lengths of the queries and keys in a row 1, and scales the queries.
    fn scale(&self, row: &mut [f32]) {
        let (keys, width) = (self.sizes.keys(), self.sizes.key_width);
        let scale = (width as f32).powf(-0.5);
        for (at, head) in row[..2 * keys].chunks_exact_mut(width).enumerate() {
            let square: f32 = head.iter().map(|value| value * value).sum();
            let factor = 1.0 / (square + DELTA_LENGTH_EPS as f32).sqrt();
            let factor = if at < self.sizes.key_heads { factor * scale } else { factor };
            head.iter_mut().for_each(|value| *value *= factor);
        }
    }
}

impl Token<'_> {
    /// Lets `matrix` (width of a key, width of a value) decay, replaces what it has for the key by the value, as far as it is
    /// stored, and writes what it has for the query to `out`. `new` is overwritten.
    fn advance(&self, matrix: &mut [f32], new: &mut [f32], out: &mut [f32]) {
        read(matrix, self.key, new);
        for (new, value) in new.iter_mut().zip(self.value) {
            *new = (value - self.left * *new) * self.stored;
        }
        store_and_read(matrix, self.left, [self.key, self.query], new, out);
    }
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn a_new_value_replaces_what_is_stored_for_its_key() {
        let (mut matrix, mut new, mut out) = (vec![0.0; 4], [0.0; 2], [0.0; 2]);
        let mut read = |key: [f32; 2], query: [f32; 2], value: [f32; 2], stored, left| {
            let token = Token { query: &query, key: &key, value: &value, stored, left };
            token.advance(&mut matrix, &mut new, &mut out);
            out
        };
        assert_eq!(read([1.0, 0.0], [1.0, 0.0], [3.0, 5.0], 1.0, 1.0), [3.0, 5.0]);
        // Another key changes nothing of this one.
        assert_eq!(read([0.0, 1.0], [1.0, 0.0], [9.0, 9.0], 1.0, 1.0), [3.0, 5.0]);
        // Half of the way to the new value.
        assert_eq!(read([1.0, 0.0], [1.0, 0.0], [1.0, 1.0], 0.5, 1.0), [2.0, 3.0]);
        // All decays to a half, and nothing is stored.
        assert_eq!(read([1.0, 0.0], [1.0, 1.0], [1.0, 1.0], 0.0, 0.5), [5.5, 6.0]);
    }
}
