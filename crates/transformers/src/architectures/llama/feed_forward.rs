//! The feed-forward parts of layers: projections, or a mixture of such experts.

use candle_core::{D, DType, Tensor};
use candle_nn::VarBuilder;
use sporran_checkpoint::Result;

use super::{
    config::LlamaConfig,
    experts::Experts,
    names::{Inner, PROJECTED, PartNames, SHARED, SHARED_GATE},
};
use crate::{
    layers::{Activation, Linear, softmax, values},
    mode::Mode,
};

/// Two projections with an activation between them.
#[derive(Debug, Clone)]
pub(super) struct FeedForward {
    gates: Gates,
    down: Linear,
    activation: Activation,
}

/// The inner projections.
#[derive(Debug, Clone)]
enum Gates {
    Apart {
        gate: Linear,
        up: Linear,
    },
    Fused(Linear),
    /// There is no gate.
    Plain(Linear),
}

/// A projection with a bias or without one.
pub(super) fn linear(
    config: &LlamaConfig,
    (inputs, outputs): (usize, usize),
    has_bias: bool,
    vb: &VarBuilder,
) -> Result<Linear> {
    let std = config.initializer_range;
    if has_bias { Linear::with_bias(inputs, outputs, std, vb) } else { Linear::new(inputs, outputs, std, vb) }
}

impl FeedForward {
    /// A part of this inner width, whose tensors have these names under `vb`.
    fn new(config: &LlamaConfig, inner: usize, names: PartNames, vb: &VarBuilder) -> Result<Self> {
        let (width, has_bias) = (config.hidden_size, config.feed_forward_has_bias());
        let up = |outputs: usize, name: &str| linear(config, (width, outputs), has_bias, &vb.pp(name));
        let gates = match names.inner {
            Inner::Gated(gate, name) => Gates::Apart { gate: up(inner, gate)?, up: up(inner, name)? },
            Inner::Fused(name) => Gates::Fused(up(2 * inner, name)?),
            Inner::Plain(name) => Gates::Plain(up(inner, name)?),
        };
        Ok(Self {
            gates,
            down: linear(config, (inner, width), has_bias, &vb.pp(names.outer))?,
            activation: config.activation()?,
        })
    }

    /// States (.., width) to what the part adds to them.
    fn forward(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        let (gate, up) = match &self.gates {
            Gates::Apart { gate, up } => (gate.forward(xs)?, Some(up.forward(xs)?)),
            Gates::Fused(both) => {
                let both = both.forward(xs)?.chunk(2, D::Minus1)?;
                (both[0].contiguous()?, Some(both[1].contiguous()?))
            }
            Gates::Plain(all) => (all.forward(xs)?, None),
        };
        let active = self.activation.forward_fused(&gate, mode)?;
        self.down.forward(&match up {
            Some(up) => (active * up)?,
            None => active,
        })
    }
}

/// The feed-forward part of a layer.
#[derive(Debug, Clone)]
pub(super) enum Part {
    /// Every token reads it.
    Dense(FeedForward),
    Experts(Mixture),
}

impl Part {
    /// The part of layer `at`, whose tensors are under `vb`.
    pub(super) fn new(config: &LlamaConfig, at: usize, vb: &VarBuilder) -> Result<Self> {
        match config.experts(at) {
            Some(experts) => Ok(Self::Experts(Mixture::new(config, experts, vb)?)),
            None => {
                let names = config.kind.names().part;
                Ok(Self::Dense(FeedForward::new(config, config.intermediate_size, names, vb)?))
            }
        }
    }

    /// States (r, t, d) to what the part adds to them.
    pub(super) fn forward(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        match self {
            Self::Dense(part) => part.forward(xs, mode),
            Self::Experts(mixture) => mixture.forward(xs, mode),
        }
    }
}

/// A mixture of experts.
#[derive(Debug, Clone)]
pub(super) struct Mixture {
    sizes: Experts,
    router: Linear,
    experts: Vec<FeedForward>,
    /// The part that every token reads, and the layer that weighs it.
    shared: Option<(FeedForward, Linear)>,
}

impl Mixture {
    fn new(config: &LlamaConfig, sizes: Experts, vb: &VarBuilder) -> Result<Self> {
        let names = config.kind.expert_names();
        let width = config.hidden_size;
        let place = vb.pp(names.experts);
        let expert = |at: usize| FeedForward::new(config, sizes.width, names.part, &place.pp(at));
        let shared = |inner: usize| -> Result<_> {
            let part = FeedForward::new(config, inner, PROJECTED, &vb.pp(SHARED))?;
            Ok((part, linear(config, (width, 1), false, &vb.pp(SHARED_GATE))?))
        };
        Ok(Self {
            sizes,
            router: linear(config, (width, sizes.count), false, &vb.pp(names.router))?,
            experts: (0..sizes.count).map(expert).collect::<Result<_>>()?,
            shared: sizes.shared.map(shared).transpose()?,
        })
    }

    fn forward(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        let flat = xs.reshape(((), xs.dim(D::Minus1)?))?;
        let scores = self.router.forward(&flat)?;
        let wide = if scores.dtype() == DType::F64 { scores } else { scores.to_dtype(DType::F32)? };
        let probabilities = softmax(&wide, mode)?;
        let mut tokens = vec![Vec::new(); self.sizes.count];
        let mut mask = vec![0f32; flat.dim(0)? * self.sizes.count];
        let rows = values(&probabilities)?;
        let rows = rows.chunks_exact(self.sizes.count).zip(mask.chunks_exact_mut(self.sizes.count));
        for (token, (probabilities, mask)) in rows.enumerate() {
            for expert in self.sizes.choose(probabilities) {
                mask[expert] = 1.0;
                tokens[expert].push(token as u32);
            }
        }
        let mask = Tensor::from_vec(mask, probabilities.shape(), xs.device())?;
        let mut weights = (&probabilities * mask.to_dtype(probabilities.dtype())?)?;
        if self.sizes.is_normalised {
            weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
        }
        let weights = weights.to_dtype(xs.dtype())?;
        let mut out = flat.zeros_like()?;
        for (at, (expert, tokens)) in self.experts.iter().zip(tokens).enumerate() {
            if tokens.is_empty() {
                continue;
            }
            let tokens = Tensor::new(tokens, xs.device())?;
            let result = expert.forward(&flat.index_select(&tokens, 0)?, mode)?;
            let weight = weights.narrow(1, at, 1)?.contiguous()?.index_select(&tokens, 0)?;
            out = out.index_add(&tokens, &result.broadcast_mul(&weight)?, 0)?;
        }
        if let Some((part, gate)) = &self.shared {
            let weight = candle_nn::ops::sigmoid(&gate.forward(&flat)?)?;
            out = (out + part.forward(&flat, mode)?.broadcast_mul(&weight)?)?;
        }
        Ok(out.reshape(xs.shape())?)
    }
}
