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
    /// The tokens of `input`.
    ///
    /// # Errors
    /// [`Error::Batch`] where the tokens of an input are not one run, or there is none.
    pub(super) fn new(input: &Batch) -> Result<Self> {
        let (ids, mask) = (input.ids.to_vec2::<u32>()?, input.mask.to_vec2::<f32>()?);
        let mut tokens = Vec::new();
        let mut lengths = Vec::with_capacity(ids.len());
        for (input, (ids, mask)) in ids.iter().zip(&mask).enumerate() {
            let start = mask.iter().position(|seen| *seen != 0.0).unwrap_or(mask.len());
            let length = mask[start..].iter().take_while(|seen| **seen != 0.0).count();
            if length == 0 || mask[start + length..].iter().any(|seen| *seen != 0.0) {
                return Err(Error::Batch {
                    expected: "a mask with one run of tokens in each row".into(),
                    found: "gaps or no token".into(),
                });
            }
            let token = |position: usize| Token { id: ids[position], input, position };
            tokens.extend((start..start + length).map(token));
            lengths.push(length);
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
