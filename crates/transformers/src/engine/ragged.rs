//! Batches without padding.

use candle_core::{Device, Tensor};
use sporran_kernels::Rows;

use crate::{
    batch::Batch,
    error::{Error, Result},
};

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

impl Ragged {
    /// The tokens of `input`, for a model that counts positions from an input's first token on.
    ///
    /// # Errors
    /// [`Error::Batch`] where the tokens of an input are not one run, or there is none.
    pub(super) fn new(input: &Batch) -> Result<Self> {
        for mask in input.mask.to_vec2::<f32>()? {
            let seen = |seen: &&f32| **seen != 0.0;
            if mask.iter().skip_while(|at| !seen(at)).skip_while(seen).any(|at| seen(&at)) {
                return Err(Error::Batch {
                    expected: "a mask with one run of tokens in each row".into(),
                    found: "gaps".into(),
                });
            }
        }
        Self::with_gaps(input)
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

    /// A row for every token, as (b, s, d) with zeros at padding.
    pub(super) fn padded(&self, xs: &Rows, device: &Device) -> Result<Tensor> {
        let ((batch, length), width) = (self.shape, xs.width());
        let mut values = vec![0f32; batch * length * width];
        for (row, token) in self.tokens.iter().enumerate() {
            let place = token.input * length + token.position;
            values[place * width..][..width].copy_from_slice(xs.row(row));
        }
        Ok(Tensor::from_vec(values, (batch, length, width), device)?)
    }
}
