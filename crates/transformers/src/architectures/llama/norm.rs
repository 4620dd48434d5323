//! The norms of hidden states, queries and keys.

use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{
    config::LlamaConfig,
    norms::{HeadNorms, NormKind, OwnWeights},
};
use crate::{
    layers::{LayerNorm, RmsNorm},
    mode::Mode,
};

/// A norm of hidden states.
#[derive(Debug, Clone)]
pub(super) enum Norm {
    Root(RmsNorm),
    Layer(LayerNorm),
}

impl Norm {
    pub(super) fn new(config: &LlamaConfig, width: usize, vb: &VarBuilder) -> Result<Self> {
        let eps = config.norm_eps();
        Ok(match config.norm_kind() {
            NormKind::Root => Self::Root(RmsNorm::new(width, eps, 1.0, vb)?),
            NormKind::RootAroundOne => Self::Root(RmsNorm::around_one(width, eps, vb)?),
            NormKind::RootWithoutWeights => Self::Root(RmsNorm::without_weights(width, eps, vb)?),
            NormKind::Layer => Self::Layer(LayerNorm::new(width, eps, vb)?),
            NormKind::LayerAroundOne => Self::Layer(LayerNorm::around_one(width, eps, vb)?),
            NormKind::LayerWithoutShift => Self::Layer(LayerNorm::without_shift(width, eps, vb)?),
            NormKind::LayerWithoutWeights => Self::Layer(LayerNorm::without_weights(width, eps, vb)?),
        })
    }

    pub(super) fn forward(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        match self {
            Self::Root(norm) => norm.forward(xs, mode),
            Self::Layer(norm) => norm.forward_fused(xs, mode),
        }
    }
}

/// A norm of queries or keys.
#[derive(Debug, Clone)]
pub(super) enum HeadNorm {
    /// It normalises each head.
    Each(Norm),
    /// It normalises all heads as one vector.
    All(Norm),
    /// It normalises each head, which has its own of the weights: one tensor (heads, width), or one a head.
    Own(LayerNorm, Vec<Tensor>),
}

impl HeadNorm {
    /// The norm called `name` of `heads` heads of this `width`; none where the model has no such norms.
    pub(super) fn new(
        config: &LlamaConfig,
        (heads, width): (usize, usize),
        name: &str,
        vb: &VarBuilder,
    ) -> Result<Option<Self>> {
        let vb = &vb.pp(name);
        let one = Init::Const(1.0);
        Ok(Some(match config.head_norms() {
            HeadNorms::None => return Ok(None),
            HeadNorms::Each => Self::Each(Norm::new(config, width, vb)?),
            HeadNorms::All => Self::All(Norm::new(config, heads * width, vb)?),
            HeadNorms::Own(stored) => {
                let norm = LayerNorm::without_weights(width, config.norm_eps(), vb)?;
                let weights = match stored {
                    OwnWeights::Together => vec![vb.get_with_hints((heads, width), "weight", one)?],
                    OwnWeights::Apart => (0..heads)
                        .map(|head| vb.get_with_hints(width, &format!("norms.{head}.weight"), one))
                        .collect::<candle_core::Result<_>>()?,
                };
                Self::Own(norm, weights)
            }
        }))
    }

    /// Queries or keys (r, t, heads * width), normalised.
    pub(super) fn forward(&self, xs: &Tensor, heads: usize, mode: &Mode) -> Result<Tensor> {
        let (rows, length, width) = xs.dims3()?;
        let each = || xs.reshape((rows, length, heads, width / heads));
        let normed = match self {
            Self::All(norm) => return norm.forward(xs, mode),
            Self::Each(norm) => norm.forward(&each()?, mode)?,
            Self::Own(norm, weights) => {
                let weights = Tensor::cat(weights, 0)?.reshape((heads, width / heads))?;
                norm.forward_fused(&each()?, mode)?.broadcast_mul(&weights)?
            }
        };
        Ok(normed.reshape((rows, length, width))?)
    }

    /// The same of heads apart (r, heads, t, width).
    pub(super) fn forward_heads(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        match self {
            Self::Each(norm) => norm.forward(xs, mode),
            _ => {
                let (rows, heads, length, width) = xs.dims4()?;
                let flat = xs.transpose(1, 2)?.reshape((rows, length, heads * width))?;
                let normed = self.forward(&flat, heads, mode)?.reshape((rows, length, heads, width))?;
                Ok(normed.transpose(1, 2)?.contiguous()?)
            }
        }
    }
}
