//! Multi-head attention (Vaswani et al. 2017), for self-attention and cross-attention alike.

use candle_core::{D, Tensor};
use sporran_checkpoint::Result;

use crate::{
    cache::KeyValue,
    fused::{self, AttentionDropout},
    layers::{Linear, softmax},
    mode::Mode,
};

/// The four projections of a multi-head attention and how its scores are made.
#[derive(Debug, Clone)]
pub(crate) struct Attention {
    pub(crate) query: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) output: Linear,
    pub(crate) heads: usize,
    /// The factor of the products of queries and keys; T5 has 1 (it folds the scale into its weights).
    pub(crate) scale: f64,
    /// The dropout rate of the attention weights.
    pub(crate) dropout: f64,
}

impl Attention {
    /// The keys and values of `source` (b, s, d), each (b, heads, s, width).
    pub(crate) fn project(&self, source: &Tensor) -> Result<KeyValue> {
        Ok(KeyValue { keys: self.heads(&self.key, source)?, values: self.heads(&self.value, source)? })
    }

    /// The attention weights of `xs` (b, t, d) on their sources, the mean over heads and positions: (b, s).
    pub(crate) fn weights(&self, xs: &Tensor, source: &KeyValue, bias: &Tensor) -> Result<Tensor> {
        let queries = self.heads(&self.query, xs)?;
        let scores = (queries.matmul(&source.keys.t()?)? * self.scale)?.broadcast_add(bias)?;
        Ok(softmax(&scores, &Mode::Inference)?.mean((1, 2))?)
    }

    /// Attends from `xs` (r, t, d) to the keys and values of `b` sources, and returns (r, t, d).
    ///
    /// `r` is `b`, or a multiple of it: then rows are grouped by source, and a group's queries run against the
    /// one copy of its keys. `bias` is added to the scores and is broadcastable to (b, heads, r / b * t, s).
    pub(crate) fn forward(
        &self,
        xs: &Tensor,
        source: &KeyValue,
        bias: Option<&Tensor>,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let (rows, length, width) = xs.dims3()?;
        let sources = source.keys.dim(0)?;
        let queries = self.heads(&self.query, &xs.reshape((sources, rows / sources * length, width))?)?;
        let weights = self.weigh(&queries.matmul(&source.keys.t()?)?, bias, mode)?;
        let weights = mode.dropout(weights, self.dropout)?;
        let mixed = merged(&weights.matmul(&source.values)?)?;
        self.output.forward(&mixed.reshape((rows, length, ()))?)
    }

    /// Attends from `xs` (b, t, d) to all of `source` (b, s, d), as [`project`](Self::project) and
    /// [`forward`](Self::forward) do, but in training on a CPU with one operation in place of many.
    pub(crate) fn attend(
        &self,
        xs: &Tensor,
        source: &Tensor,
        bias: &Tensor,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        if !(mode.is_training() && fused::applies(xs)) {
            return self.forward(xs, &self.project(source)?, Some(bias), mode);
        }
        let queries = self.query.forward(xs)?;
        let pairs = Tensor::cat(&[self.key.forward(source)?, self.value.forward(source)?], D::Minus1)?;
        let dropout = match mode.seed(self.dropout) {
            Some(seed) => AttentionDropout { rate: self.dropout, seed },
            None => AttentionDropout { rate: 0.0, seed: 0 },
        };
        let mixed = fused::attention(&queries, &pairs, bias, (self.heads, self.heads), self.scale, dropout)?;
        self.output.forward(&mixed)
    }

    /// The weights of products of queries and keys (b, heads, t, s).
    fn weigh(&self, scores: &Tensor, bias: Option<&Tensor>, mode: &Mode) -> Result<Tensor> {
        #[cfg(feature = "cuda")]
        if crate::cuda::infers(scores) && !bias.is_some_and(Tensor::track_op) {
            return Ok(crate::cuda::attention_weights(scores, bias, self.scale)?);
        }
        let mut scores = scores.clone();
        if self.scale != 1.0 {
            scores = (scores * self.scale)?;
        }
        if let Some(bias) = bias {
            scores = scores.broadcast_add(bias)?;
        }
        softmax(&scores, mode)
    }

    /// The projection of `xs` (b, t, d), split into heads: (b, heads, t, width).
    pub(crate) fn heads(&self, projection: &Linear, xs: &Tensor) -> Result<Tensor> {
        #[cfg(feature = "cuda")]
        if crate::cuda::infers(xs) {
            return Ok(crate::cuda::split_heads(&projection.product(xs)?, projection.bias(), self.heads)?);
        }
        self.split(&projection.forward(xs)?)
    }

    /// (b, t, heads * width) to (b, heads, t, width), laid out for batched products.
    fn split(&self, xs: &Tensor) -> Result<Tensor> {
        let (batch, length, _) = xs.dims3()?;
        Ok(xs.reshape((batch, length, self.heads, ()))?.transpose(1, 2)?.contiguous()?)
    }
}

/// (b, heads, t, width) to (b, t, heads * width).
pub(crate) fn merged(xs: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if crate::cuda::infers(xs) {
        return Ok(crate::cuda::merge_heads(xs)?);
    }
    Ok(xs.transpose(1, 2)?.flatten_from(D::Minus2)?)
}

/// Turns each pair of `xs` (r, h, t, w), which lie half a part apart, by its angle; `cos` and `sin` are (r, 1, t, v). The
/// values of a head after the first `v` stay.
pub(crate) fn rotate(xs: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (width, turned) = (xs.dim(D::Minus1)?, cos.dim(D::Minus1)?);
    let half = turned / 2;
    let (first, second) = (xs.narrow(3, 0, half)?, xs.narrow(3, half, half)?);
    let across = Tensor::cat(&[&second.neg()?, &first], D::Minus1)?;
    if turned == width {
        return Ok((xs.broadcast_mul(cos)? + across.broadcast_mul(sin)?)?);
    }
    let part = xs.narrow(3, 0, turned)?;
    let part = (part.broadcast_mul(cos)? + across.broadcast_mul(sin)?)?;
    // candle joins the last dimension with another layout.
    Ok(Tensor::cat(&[part, xs.narrow(3, turned, width - turned)?], D::Minus1)?.contiguous()?)
}

/// Turns pairs of `xs` (r, h, t, w), which lie side by side, by their angles; `cos` and `sin` are (r, 1, t, v) with the two
/// halves of `v` alike. The values of a head after the first `v` stay.
pub(crate) fn rotate_neighbours(xs: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (rows, heads, length, width) = xs.dims4()?;
    let turned = cos.dim(D::Minus1)?;
    let pairs = xs.narrow(3, 0, turned)?.reshape((rows, heads, length, turned / 2, 2))?;
    let part = |at: usize| pairs.narrow(4, at, 1)?.squeeze(4)?.contiguous();
    let (first, second) = (part(0)?, part(1)?);
    let [cos, sin] = [cos.narrow(3, 0, turned / 2)?, sin.narrow(3, 0, turned / 2)?];
    let both = [
        (first.broadcast_mul(&cos)? - second.broadcast_mul(&sin)?)?,
        (second.broadcast_mul(&cos)? + first.broadcast_mul(&sin)?)?,
    ];
    let part = Tensor::stack(&both, 4)?.reshape((rows, heads, length, turned))?;
    if turned == width {
        return Ok(part);
    }
    Ok(Tensor::cat(&[part, xs.narrow(3, turned, width - turned)?], D::Minus1)?.contiguous()?)
}
