//! Batches without padding.

use std::sync::{Mutex, PoisonError};

use candle_core::{Device, Tensor};
use sporran_checkpoint::{Error, Result};
use sporran_kernels::{Rows, ThreadPool};

use crate::{batch::Batch, encoder::no_such_token};

/// The tokens of a batch, one input after the other, without padding.
pub(super) struct Ragged {
    pub(super) tokens: Vec<Token>,
    /// The number of tokens of each input.
    pub(super) lengths: Vec<usize>,
    /// The shape of the batch (b, s).
    shape: (usize, usize),
}

/// A token and where it stood.
#[derive(Clone, Copy)]
pub(super) struct Token {
    pub(super) id: u32,
    pub(super) input: usize,
    pub(super) position: usize,
}

/// The number of each token among those of its input that are not `pad`, counted from after its id; it has its id.
pub(super) fn counted_from_padding(tokens: &[Token], pad: u32) -> Vec<usize> {
    let (mut input, mut seen) = (usize::MAX, 0);
    let mut row = |token: &Token| {
        if token.input != input {
            (input, seen) = (token.input, 0);
        }
        seen += usize::from(token.id != pad);
        pad as usize + if token.id == pad { 0 } else { seen }
    };
    tokens.iter().map(&mut row).collect()
}

impl Ragged {
    /// The tokens of `input`, for a model that counts positions from an input's first token on.
    ///
    /// # Errors
    /// [`Error::Batch`] where the tokens of an input are not one run, or there is none.
    pub(super) fn new(input: &Batch) -> Result<Self> {
        let ragged = Self::with_gaps(input)?;
        let is_gap =
            |pair: &[Token]| pair[0].input == pair[1].input && pair[0].position + 1 != pair[1].position;
        if ragged.tokens.windows(2).any(is_gap) {
            let (expected, found) = ("a mask with one run of tokens in each row", "gaps");
            return Err(Error::Batch { expected: expected.into(), found: found.into() });
        }
        Ok(ragged)
    }

    /// The tokens of `input`, for a model that looks up the position at which each stands.
    ///
    /// # Errors
    /// [`Error::Batch`] where an input has no token.
    pub(super) fn with_gaps(input: &Batch) -> Result<Self> {
        let (ids, mask) = (input.ids.to_vec2::<u32>()?, input.mask.to_vec2::<f32>()?);
        let mut tokens = Vec::new();
        let mut lengths = Vec::with_capacity(ids.len());
        for (input, (ids, mask)) in ids.iter().zip(&mask).enumerate() {
            let before = tokens.len();
            let seen = (0..mask.len()).filter(|&position| mask[position] != 0.0);
            tokens.extend(seen.map(|position| Token { id: ids[position], input, position }));
            if tokens.len() == before {
                let (expected, found) = ("at least one token in every row", "a mask of zeros");
                return Err(Error::Batch { expected: expected.into(), found: found.into() });
            }
            lengths.push(tokens.len() - before);
        }
        Ok(Self { tokens, lengths, shape: (input.size(), input.length()) })
    }

    /// The row of a token, named by its input and its position there.
    ///
    /// # Errors
    /// [`Error::Batch`] where there is none.
    pub(super) fn row(&self, token: (usize, usize)) -> Result<usize> {
        let found = self.tokens.binary_search_by_key(&token, |token| (token.input, token.position));
        found.map_err(|_| no_such_token(self.shape, token))
    }

    /// The states (n, d) of `tokens`, each named by its input and its position there. `run` gives those of rows that rise.
    ///
    /// # Errors
    /// [`Error::Batch`] where there is no such token, and those of `run`.
    pub(super) fn states_at(
        &self,
        tokens: &[(usize, usize)],
        device: &Device,
        run: impl FnOnce(&[usize]) -> Result<Rows>,
    ) -> Result<Tensor> {
        let rows = tokens.iter().map(|token| self.row(*token)).collect::<Result<Vec<_>>>()?;
        let mut wanted = rows.clone();
        wanted.sort_unstable();
        wanted.dedup();
        let xs = run(&wanted)?;
        let mut values = Vec::with_capacity(rows.len() * xs.width());
        for row in &rows {
            values.extend_from_slice(xs.row(wanted.partition_point(|wanted| wanted < row)));
        }
        Ok(Tensor::from_vec(values, (rows.len(), xs.width()), device)?)
    }

    /// A row for every token, as (b, s, d) with zeros at padding.
    pub(super) fn padded(&self, xs: &Rows, device: &Device) -> Result<Tensor> {
        let ((batch, length), width) = (self.shape, xs.width());
        let mut values = vec![0f32; batch * length * width];
        let inputs: Vec<Mutex<&mut [f32]>> = values.chunks_mut(length * width).map(Mutex::new).collect();
        // On all threads, since the system clears fresh memory when it is first written to.
        ThreadPool::global().run(batch, &|at| {
            let mut input = inputs[at].lock().unwrap_or_else(PoisonError::into_inner);
            let first: usize = self.lengths[..at].iter().sum();
            for (row, token) in self.tokens[first..][..self.lengths[at]].iter().enumerate() {
                input[token.position * width..][..width].copy_from_slice(xs.row(first + row));
            }
        });
        drop(inputs);
        Ok(Tensor::from_vec(values, (batch, length, width), device)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_for_models_that_look_positions_up() {
        let batch = |mask: [[f32; 4]; 2]| {
            let ids = Tensor::new(&[[5u32, 6, 7, 8], [1, 2, 3, 4]], &Device::Cpu).unwrap();
            Batch::from_tensors(ids, &Tensor::new(&mask, &Device::Cpu).unwrap()).unwrap()
        };
        let gap = batch([[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]]);
        assert!(matches!(Ragged::new(&gap), Err(Error::Batch { .. })));
        let ragged = Ragged::with_gaps(&gap).unwrap();
        let found: Vec<_> = ragged.tokens.iter().map(|token| (token.id, token.position)).collect();
        assert_eq!((found, ragged.lengths), (vec![(5, 0), (8, 3), (2, 1), (3, 2)], vec![2, 2]));
        assert!(Ragged::new(&batch([[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]])).is_ok());
        assert!(Ragged::with_gaps(&batch([[0.0; 4], [1.0; 4]])).is_err());
    }
}
