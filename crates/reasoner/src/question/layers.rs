//! Layers of the heads of question models.

use candle_core::{D, Tensor};
use candle_nn::{Init, VarBuilder, ops::softmax};

use super::encoding::EncodedQuestion;
use crate::Result;

/// `x W^T + b` over rows.
#[derive(Clone, Debug)]
pub(super) struct Dense {
    weight: Tensor,
    bias: Tensor,
}

impl Dense {
    pub(super) fn new(input: usize, output: usize, vb: &VarBuilder) -> Result<Self> {
        Self::normal(input, output, (input as f64).powf(-0.5), vb)
    }

    /// The same with the initial values of PyTorch's linear layers.
    pub(super) fn uniform(input: usize, output: usize, vb: &VarBuilder) -> Result<Self> {
        let bound = (input as f64).powf(-0.5);
        let init = Init::Uniform { lo: -bound, up: bound };
        Ok(Self {
            weight: vb.get_with_hints((output, input), "weight", init)?,
            bias: vb.get_with_hints(output, "bias", init)?,
        })
    }

    /// The same with normal initial values, as those of an encoder's own layers.
    pub(super) fn normal(input: usize, output: usize, stdev: f64, vb: &VarBuilder) -> Result<Self> {
        Ok(Self {
            weight: vb.get_with_hints((output, input), "weight", Init::Randn { mean: 0.0, stdev })?,
            bias: vb.get_with_hints(output, "bias", Init::Const(0.0))?,
        })
    }

    /// Rows (n, input) to (n, output).
    pub(super) fn forward(&self, rows: &Tensor) -> Result<Tensor> {
        Ok(rows.matmul(&self.weight.t()?)?.broadcast_add(&self.bias)?)
    }
}

/// The selected tokens of each input in a batch, padded to the largest number.
pub(super) struct Tokens {
    /// Positions among the tokens of all rows, (inputs * most); 0 for padding.
    places: Tensor,
    /// 1 for a token, 0 for padding, (inputs, most).
    mask: Tensor,
    inputs: usize,
    most: usize,
}

impl Tokens {
    /// The tokens that `of` selects for each input.
    pub(super) fn new(
        inputs: &[&EncodedQuestion],
        like: &Tensor,
        of: impl Fn(&EncodedQuestion) -> Vec<usize>,
    ) -> Result<Self> {
        let tokens: Vec<Vec<usize>> = inputs.iter().map(|input| of(input)).collect();
        let most = tokens.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let (mut places, mut mask) = (vec![0u32; inputs.len() * most], vec![0f32; inputs.len() * most]);
        let mut first = 0;
        for (row, (input, tokens)) in inputs.iter().zip(&tokens).enumerate() {
            for (at, &token) in tokens.iter().enumerate() {
                places[row * most + at] = (first + token) as u32;
                mask[row * most + at] = 1.0;
            }
            first += input.row.ids.len();
        }
        let device = like.device();
        Ok(Self {
            places: Tensor::new(places, device)?,
            mask: Tensor::from_vec(mask, (inputs.len(), most), device)?,
            inputs: inputs.len(),
            most,
        })
    }

    /// The largest number of tokens of an input.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Their hidden states (inputs, most, d), from the hidden states (tokens, d) of all rows.
    pub(super) fn states(&self, states: &Tensor) -> Result<Tensor> {
        let width = states.dim(1)?;
        Ok(states.index_select(&self.places, 0)?.reshape((self.inputs, self.most, width))?)
    }

    /// The softmax (inputs, most) of logits over the tokens of each input; all 0 without tokens.
    pub(super) fn shares(&self, logits: &Tensor) -> Result<Tensor> {
        let bias = ((&self.mask - 1.0)? * 1e9)?;
        Ok((softmax(&(logits + bias)?, D::Minus1)? * &self.mask)?)
    }

    /// The mean of their hidden states, (inputs, d).
    pub(super) fn mean(&self, states: &Tensor) -> Result<Tensor> {
        let count = self.mask.sum_keepdim(1)?.clamp(1.0, f64::INFINITY)?;
        weighted(&self.states(states)?, &self.mask.broadcast_div(&count)?)
    }
}

/// The sums (inputs, d) of hidden states (inputs, most, d) by weights (inputs, most).
pub(super) fn weighted(states: &Tensor, weights: &Tensor) -> Result<Tensor> {
    Ok(states.broadcast_mul(&weights.unsqueeze(2)?)?.sum(1)?)
}

/// The products (inputs, most) of hidden states (inputs, most, d) with one vector (inputs, d) for each input.
pub(super) fn products(states: &Tensor, vectors: &Tensor) -> Result<Tensor> {
    Ok(states.broadcast_mul(&vectors.unsqueeze(1)?)?.sum(2)?)
}

/// These products, divided by the square root of `d`.
pub(super) fn scaled_products(states: &Tensor, vectors: &Tensor) -> Result<Tensor> {
    let scale = (vectors.dim(1)? as f64).powf(-0.5);
    Ok((products(states, vectors)? * scale)?)
}
