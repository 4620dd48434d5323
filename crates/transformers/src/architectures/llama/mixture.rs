//! The feed-forward part of a layer: one that every token reads, or a mixture of experts.

use candle_core::{D, DType, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::{Error, Result};

use super::{
    config::LlamaConfig,
    experts::{Experts, Weighing},
    feed_forward::{FeedForward, linear},
    names::{BESIDE, ExpertTensors, SHARED_GATE},
};
use crate::{
    layers::{Linear, softmax, values},
    mode::Mode,
};

/// The feed-forward part of a layer.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a layer has one")]
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
                let names = (names, config.feed_forward_has_bias());
                let part = FeedForward::new(config, config.inner_width(at), names, vb)?;
                Ok(Self::Dense(part.with_least(config.least_deviation(at))))
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
    /// What is added to the weights of experts where they are chosen (experts).
    corrections: Option<Tensor>,
    /// The factors of the weights of experts afterwards (experts).
    factors: Option<Tensor>,
    experts: Vec<FeedForward>,
    /// The part that every token reads, and the layer that weighs it.
    shared: Option<(FeedForward, Option<Linear>)>,
}

impl Mixture {
    pub(super) fn new(config: &LlamaConfig, sizes: Experts, vb: &VarBuilder) -> Result<Self> {
        let names = config.expert_names();
        let width = config.hidden_size;
        let experts = match names.experts {
            ExpertTensors::Apart(place, part) => {
                let place = vb.pp(place);
                let expert = |at: usize| FeedForward::new(config, sizes.width, (part, false), &place.pp(at));
                (0..sizes.count).map(expert).collect::<Result<_>>()?
            }
            ExpertTensors::Together(names) => together(config, &sizes, names, vb)?,
            ExpertTensors::Alternating(names) => alternating(config, &sizes, names, vb)?,
        };
        let shared = match sizes.shared {
            Some(shared) => {
                let part = (names.shared_part, config.feed_forward_has_bias());
                let part = FeedForward::new(config, shared.width, part, &vb.pp(names.shared))?;
                let gate = || linear(config, (width, 1), false, &vb.pp(SHARED_GATE));
                Some((part, shared.is_weighed.then(gate).transpose()?))
            }
            None => None,
        };
        let corrections = sizes.is_corrected.then(|| -> Result<_> {
            let shape = config.corrections_shape(sizes.count);
            let all = vb.get_with_hints(shape, names.corrections, Init::Const(0.0))?;
            Ok(all.flatten_all()?.detach())
        });
        let factors = config
            .experts_beside()
            .map(|sizes| vb.get_with_hints(sizes.count, BESIDE.factors, Init::Const(1.0)));
        Ok(Self {
            sizes,
            router: linear(config, (width, sizes.count), sizes.has_bias, &vb.pp(names.router))?,
            corrections: corrections.transpose()?,
            factors: factors.transpose()?,
            experts,
            shared,
        })
    }

    /// The weights (n, experts) of the results of experts for states `xs` (n, d), 0 where one does not read a state, and for each
    /// expert the states that it reads.
    fn weigh(&self, xs: &Tensor, mode: &Mode) -> Result<(Tensor, Vec<Vec<u32>>)> {
        let scores = self.router.forward(xs)?;
        let wide = if scores.dtype() == DType::F64 { scores } else { scores.to_dtype(DType::F32)? };
        let weights = match self.sizes.weighing {
            Weighing::Softmax => softmax(&wide, mode)?,
            Weighing::Sigmoid => candle_nn::ops::sigmoid(&wide)?,
            // The weights are made on the host.
            Weighing::Near(_) => wide.clone(),
        };
        let corrections = self.corrections.as_ref().map(values).transpose()?.unwrap_or_default();
        let count = self.sizes.count;
        let mut tokens = vec![Vec::new(); count];
        let mut mask = vec![0f32; xs.dim(0)? * count];
        let rows = values(&weights)?;
        for (token, (row, mask)) in rows.chunks_exact(count).zip(mask.chunks_exact_mut(count)).enumerate() {
            let chosen = match self.sizes.weighing {
                Weighing::Near(_) => self.sizes.weigh(row, &corrections),
                _ => self.sizes.choose(row, &corrections).into_iter().map(|expert| (expert, 1.0)).collect(),
            };
            for (expert, weight) in chosen {
                mask[expert] = weight;
                tokens[expert].push(token as u32);
            }
        }
        let mask = Tensor::from_vec(mask, weights.shape(), xs.device())?.to_dtype(weights.dtype())?;
        if let Weighing::Near(_) = self.sizes.weighing {
            if mode.is_training() {
                // Training draws experts, and has a gradient of its own.
                let (expected, found) =
                    ("inference".into(), "training of a model of the type `phimoe`".into());
                return Err(Error::Batch { expected, found });
            }
            return Ok((mask, tokens));
        }
        let mut weights = (&weights * mask)?;
        if let Some(least) = self.sizes.least_sum {
            let sums = weights.sum_keepdim(D::Minus1)?;
            let sums = if least > 0.0 { sums.maximum(least)? } else { sums };
            let sums = (sums + self.sizes.added_to_sum)?;
            weights = weights.broadcast_div(&sums)?;
        }
        if self.sizes.factor != 1.0 {
            weights = (weights * self.sizes.factor)?;
        }
        if let Some(factors) = &self.factors {
            weights = weights.broadcast_mul(&factors.to_dtype(weights.dtype())?)?;
        }
        Ok((weights, tokens))
    }

    /// States (.., d) to what the part adds to them.
    fn forward(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        self.forward_routed(xs, xs, mode)
    }

    /// The same, where the experts are chosen by the states `routed` (.., d).
    pub(super) fn forward_routed(&self, routed: &Tensor, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        let flat = xs.reshape(((), xs.dim(D::Minus1)?))?;
        let (weights, tokens) = self.weigh(&routed.reshape(flat.shape())?, mode)?;
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
            let result = part.forward(&flat, mode)?;
            out = (out
                + match gate {
                    Some(gate) => result.broadcast_mul(&candle_nn::ops::sigmoid(&gate.forward(&flat)?)?)?,
                    None => result,
                })?;
        }
        Ok(out.reshape(xs.shape())?)
    }
}

/// Experts whose projections are parts of two tensors.
fn together(
    config: &LlamaConfig,
    sizes: &Experts,
    [inner, outer]: [&str; 2],
    vb: &VarBuilder,
) -> Result<Vec<FeedForward>> {
    let (width, count) = (config.hidden_size, sizes.count);
    let init = Init::Randn { mean: 0.0, stdev: config.initializer_range };
    let inner = vb.get_with_hints((count, 2 * sizes.width, width), inner, init)?;
    let outer = vb.get_with_hints((count, width, sizes.width), outer, init)?;
    let expert = |at: usize| {
        FeedForward::of(config, Linear::shared(inner.get(at)?), Linear::shared(outer.get(at)?), false)
    };
    (0..count).map(expert).collect()
}

/// The same of transposed tensors with biases, in which gates alternate with what they multiply.
fn alternating(
    config: &LlamaConfig,
    sizes: &Experts,
    [inner, outer]: [&str; 2],
    vb: &VarBuilder,
) -> Result<Vec<FeedForward>> {
    let (width, count) = (config.hidden_size, sizes.count);
    let init = Init::Randn { mean: 0.0, stdev: config.initializer_range };
    let layers = |name: &str, inputs: usize, outputs: usize| -> Result<Vec<Linear>> {
        let weights = vb.get_with_hints((count, inputs, outputs), name, init)?;
        let biases = vb.get_with_hints((count, outputs), &format!("{name}_bias"), Init::Const(0.0))?;
        (0..count).map(|at| Ok(Linear::of_transposed(weights.get(at)?, biases.get(at)?))).collect()
    };
    let inner = layers(inner, width, 2 * sizes.width)?;
    let outer = layers(outer, sizes.width, width)?;
    inner.into_iter().zip(outer).map(|(inner, outer)| FeedForward::of(config, inner, outer, true)).collect()
}
