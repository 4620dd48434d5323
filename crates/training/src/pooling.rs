//! Vectors of texts from the hidden states of an encoder.

use candle_core::Tensor;
use sporran_checkpoint::Result;
use sporran_transformers::Pooling;

use crate::tuned::Pick;

impl Pick<'static> {
    /// The states that a pooling needs: the first of each row for `cls`, else all.
    #[must_use]
    pub fn of_pooling(pooling: Pooling) -> Self {
        if pooling == Pooling::Cls { Self::First } else { Self::All }
    }
}

/// The vectors (rows, d) of the states that [`Pick::of_pooling`] picks, of rows of these lengths: the states for `cls`, else
/// their means.
///
/// # Errors
/// Tensor errors.
pub fn pool_states(pooling: Pooling, states: &Tensor, lengths: &[usize]) -> Result<Tensor> {
    if pooling == Pooling::Cls {
        return Ok(states.clone());
    }
    let tokens: usize = lengths.iter().sum();
    let mut shares = vec![0.0f32; lengths.len() * tokens];
    let mut first = 0;
    for (row, &length) in lengths.iter().enumerate() {
        shares[row * tokens + first..][..length].fill(1.0 / length as f32);
        first += length;
    }
    Ok(Tensor::from_vec(shares, (lengths.len(), tokens), states.device())?.matmul(states)?)
}
