//! The layers of a matching network over the hidden states of its two LSTMs.

use candle_core::{D, Device, Tensor};
use candle_nn::{Linear, Module};
use sporran_checkpoint::Result;
use sporran_transformers::{Mode, PackedBiLstm};

/// Pairs as both LSTMs read them: the first and the second text of each pair, one after the other.
pub(crate) struct Read {
    /// The tokens of each text.
    pub(crate) lengths: Vec<usize>,
    /// The encoder's inputs, (tokens, width).
    pub(crate) xs: Vec<f32>,
    /// Values of a token in `xs`.
    pub(crate) width: usize,
    /// The number of trailing values that the matcher reads again, after the aligned values.
    pub(crate) again: usize,
}

impl Read {
    /// The matcher's inputs, (tokens, projection + again), from the aligned tokens, (tokens, projection).
    pub(crate) fn matcher_inputs(&self, aligned: &[f32]) -> Vec<f32> {
        let tokens = self.xs.len() / self.width;
        let rows = aligned.chunks_exact(aligned.len() / tokens).zip(self.xs.chunks_exact(self.width));
        rows.flat_map(|(aligned, x)| aligned.iter().chain(&x[self.width - self.again..])).copied().collect()
    }
}

/// The layers between the two LSTMs and after the second.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// From a token and its aligned values to (projection).
    pub(crate) align: Linear,
    /// From two texts to the layer before the labels.
    pub(crate) inner: Linear,
    /// To the labels.
    pub(crate) output: Linear,
    /// The share of the values before the labels that training drops.
    pub(crate) dropout: f64,
}

impl Comparison {
    /// From the encoder's hidden states (tokens, 2 hidden) to each token combined with its aligned values, (tokens,
    /// projection).
    pub(crate) fn aligned(&self, states: &Tensor, lengths: &[usize]) -> Result<Tensor> {
        let mut partners = Vec::with_capacity(lengths.len());
        let mut from = 0;
        for pair in lengths.chunks_exact(2) {
            let (first, second) =
                (states.narrow(0, from, pair[0])?, states.narrow(0, from + pair[0], pair[1])?);
            let scores = first.matmul(&second.t()?)?;
            partners.push(candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&second)?);
            partners.push(candle_nn::ops::softmax(&scores.t()?.contiguous()?, D::Minus1)?.matmul(&first)?);
            from += pair[0] + pair[1];
        }
        let partners = Tensor::cat(&partners, 0)?;
        let joined =
            Tensor::cat(&[states, &partners, &(states - &partners)?, &(states * &partners)?], D::Minus1)?;
        Ok(self.align.forward(&joined)?.relu()?)
    }

    /// From the matcher's hidden states (tokens, 2 hidden) to logits (pairs, labels).
    pub(crate) fn compared(&self, states: &Tensor, lengths: &[usize], mode: &mut Mode) -> Result<Tensor> {
        let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
        let mut from = 0;
        for (at, &length) in lengths.iter().enumerate() {
            let greatest = states.narrow(0, from, length)?.max_keepdim(0)?;
            if at % 2 == 0 {
                firsts.push(greatest)
            } else {
                seconds.push(greatest)
            }
            from += length;
        }
        let (p, q) = (Tensor::cat(&firsts, 0)?, Tensor::cat(&seconds, 0)?);
        let joined = Tensor::cat(&[&p, &q, &(&p - &q)?.abs()?, &(&p * &q)?], D::Minus1)?;
        let inner = self.inner.forward(&mode.dropout(joined, self.dropout)?)?.relu()?;
        Ok(self.output.forward(&mode.dropout(inner, self.dropout)?)?)
    }
}

/// Both LSTMs and the other layers, packed for inference.
#[derive(Debug)]
pub(crate) struct PackedComparison {
    pub(crate) encoder: PackedBiLstm,
    pub(crate) matcher: PackedBiLstm,
    pub(crate) comparison: Comparison,
}

impl PackedComparison {
    /// The logits of each pair, one for each label.
    pub(crate) fn logits(&self, read: &Read) -> Result<Vec<Vec<f32>>> {
        let of = |lstm: &PackedBiLstm, xs: &[f32]| -> Result<Tensor> {
            let states = lstm.states(xs, &read.lengths)?;
            let width = lstm.options().width();
            Ok(Tensor::from_vec(states, ((), width), &Device::Cpu)?)
        };
        let aligned = self.comparison.aligned(&of(&self.encoder, &read.xs)?, &read.lengths)?.detach();
        let inputs = read.matcher_inputs(&aligned.flatten_all()?.to_vec1()?);
        let states = of(&self.matcher, &inputs)?;
        Ok(self.comparison.compared(&states, &read.lengths, &mut Mode::Inference)?.to_vec2()?)
    }
}
