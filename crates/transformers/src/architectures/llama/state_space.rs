//! State space layers of Mamba 2 (Dao and Gu 2024): each head keeps a matrix, which decays, and to which a product of two vectors is
//! added at every token.

use candle_core::{D, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{
    config::LlamaConfig,
    feed_forward::linear,
    layer::scaled,
    mamba::{GatedNorm, STATE_SPACE, StateSpaceSizes},
};
use crate::{
    cache::{Kept, LayerCache},
    causal::{Alignment, short_convolution, softplus, wide},
    layers::{Activation, Linear},
    mode::Mode,
};

/// A state space layer, with the convolution before it and the gate after it.
#[derive(Debug, Clone)]
pub(super) struct StateSpace {
    sizes: StateSpaceSizes,
    inputs: Linear,
    /// The weights of the convolution (channels, 1, kernel), and its biases.
    convolution: Tensor,
    convolution_bias: Option<Tensor>,
    activation: Activation,
    /// The logarithms of the decays, what is added to steps, and the factors of inputs in results (heads).
    decay: Tensor,
    bias: Tensor,
    skip: Tensor,
    /// The weights of the norm (inner), where there is one.
    norm: Option<Tensor>,
    eps: f64,
    output: Linear,
}

impl StateSpace {
    pub(super) fn new(config: &LlamaConfig, sizes: StateSpaceSizes, vb: &VarBuilder) -> Result<Self> {
        let (width, inner, heads) = (config.hidden_size, sizes.inner(), sizes.heads);
        let init = Init::Randn { mean: 0.0, stdev: config.initializer_range };
        let one = Init::Const(1.0);
        let own = vb.pp(STATE_SPACE.convolution);
        let bias = || own.get_with_hints(sizes.channels(), "bias", Init::Const(0.0));
        let all = inner + sizes.channels() + heads;
        // The decays of fresh heads are 1, 2, 3 and so on in `transformers`.
        let decays = Init::Uniform { lo: 0.0, up: (heads as f64).ln() };
        Ok(Self {
            sizes,
            inputs: linear(config, (width, all), sizes.has_bias, &vb.pp(STATE_SPACE.inputs))?,
            convolution: own.get_with_hints((sizes.channels(), 1, sizes.kernel), "weight", init)?,
            convolution_bias: sizes.convolution_has_bias.then(bias).transpose()?,
            activation: config.activation()?,
            decay: vb.get_with_hints(heads, STATE_SPACE.decay, decays)?,
            bias: vb.get_with_hints(heads, STATE_SPACE.bias, one)?,
            skip: vb.get_with_hints(heads, STATE_SPACE.skip, one)?,
            norm: sizes.norm.map(|_| vb.get_with_hints(inner, STATE_SPACE.norm, one)).transpose()?,
            eps: config.norm_eps(),
            output: linear(config, (inner, width), sizes.output_has_bias, &vb.pp(STATE_SPACE.output))?,
        })
    }

    /// Normalised states (r, t, d) to what the layer adds to them. Padded rows are moved by `alignment`.
    pub(super) fn forward(
        &self,
        xs: &Tensor,
        alignment: &Alignment,
        kept: &mut LayerCache,
        mode: &Mode,
    ) -> Result<Tensor> {
        let xs = &alignment.align(xs)?;
        let all = self.inputs.forward(xs)?;
        let part = |at: usize| -> Result<Tensor> {
            let place = &self.sizes.places()[at];
            Ok(all.narrow(2, place.start, place.len())?.contiguous()?)
        };
        let [gates, _, _, _, steps] = self.sizes.factors;
        let (gate, steps) = (scaled(part(0)?, gates)?, scaled(part(2)?, steps)?);
        let mixed = alignment.without_padding(&self.scaled(part(1)?)?)?;
        let before = kept.state(mode);
        let convolution = (&self.convolution, self.convolution_bias.as_ref());
        let (mixed, window) =
            short_convolution(&mixed, before.as_ref().map(|kept| &kept.window), convolution)?;
        // Padding has the biases of the convolution.
        let mixed = alignment.without_padding(&self.activation.forward_fused(&mixed, mode)?)?;
        let (result, matrix) = self.recur(&mixed, &steps, before.and_then(|kept| kept.matrix))?;
        kept.put_state(Kept { window, matrix: Some(matrix) }, mode);
        let gate = gate.to_dtype(wide(xs))?.silu()?;
        let result = match self.sizes.norm {
            Some(GatedNorm::Before) => (self.normalised(&result)? * gate)?,
            Some(GatedNorm::After) => self.normalised(&(result * gate)?)?,
            None => (result * gate)?,
        };
        let result = scaled(result.to_dtype(xs.dtype())?, self.sizes.result)?;
        alignment.restore(&self.output.forward(&result)?)
    }

    /// What the convolution reads (r, t, channels), by its factors.
    fn scaled(&self, xs: Tensor) -> Result<Tensor> {
        let factors = self.sizes.channel_factors();
        if factors.iter().all(|factor| *factor == 1.0) {
            return Ok(xs);
        }
        let factors = Tensor::new(factors, xs.device())?.to_dtype(xs.dtype())?;
        Ok(xs.broadcast_mul(&factors)?)
    }

    /// Results (r, t, inner), each group of heads normalised.
    fn normalised(&self, xs: &Tensor) -> Result<Tensor> {
        let (rows, length, inner) = xs.dims3()?;
        let groups = xs.reshape((rows, length, self.sizes.groups, inner / self.sizes.groups))?;
        let root = (groups.sqr()?.mean_keepdim(D::Minus1)? + self.eps)?.sqrt()?;
        let normed = groups.broadcast_div(&root)?.reshape((rows, length, inner))?;
        match &self.norm {
            Some(norm) => Ok(normed.broadcast_mul(&norm.to_dtype(xs.dtype())?)?),
            None => Ok(normed),
        }
    }

    /// The results (r, t, inner) of inputs with the vectors that write and read matrices, `mixed` (r, t, channels), and the last
    /// matrices (r, heads, state, width of a head); both in f32, or f64 where `mixed` has it.
    fn recur(&self, mixed: &Tensor, steps: &Tensor, matrix: Option<Tensor>) -> Result<(Tensor, Tensor)> {
        let StateSpaceSizes { heads, head_width, groups, state, .. } = self.sizes;
        let (rows, length, _) = mixed.dims3()?;
        let dtype = wide(mixed);
        let mixed = mixed.to_dtype(dtype)?;
        let inner = self.sizes.inner();
        // (t, r, heads, ..)
        let by_token = |xs: Tensor| xs.transpose(0, 1)?.contiguous();
        let inputs = by_token(mixed.narrow(2, 0, inner)?.reshape((rows, length, heads, 1, head_width))?)?;
        let shared = |which: usize| -> Result<Tensor> {
            let own = mixed.narrow(2, inner + which * groups * state, groups * state)?.contiguous()?;
            let own = own.reshape((rows, length, groups, 1, state))?;
            let all = own.broadcast_as((rows, length, groups, heads / groups, state))?;
            Ok(by_token(all.reshape((rows, length, heads, 1, state))?)?)
        };
        let (written, read) = (shared(0)?, shared(1)?);
        let steps = softplus(&steps.to_dtype(dtype)?.broadcast_add(&self.bias.to_dtype(dtype)?)?)?;
        let decay = steps.broadcast_mul(&self.decay.to_dtype(dtype)?.exp()?)?.neg()?.exp()?;
        let each = |xs: Tensor| by_token(xs.reshape((rows, length, heads, 1, 1))?);
        let (steps, decay) = (each(steps)?, each(decay)?);
        let stepped = inputs.broadcast_mul(&steps)?;
        let mut matrix = match matrix {
            Some(matrix) => matrix,
            None => Tensor::zeros((rows, heads, state, head_width), dtype, mixed.device())?,
        };
        let mut results = Vec::with_capacity(length);
        for at in 0..length {
            let added = written.get(at)?.transpose(2, 3)?.contiguous()?.matmul(&stepped.get(at)?)?;
            matrix = (matrix.broadcast_mul(&decay.get(at)?)? + added)?;
            results.push(read.get(at)?.matmul(&matrix)?);
        }
        let skip = self.skip.to_dtype(dtype)?.reshape((heads, 1, 1))?;
        let results = (Tensor::stack(&results, 0)? + inputs.broadcast_mul(&skip)?)?;
        let results = results.transpose(0, 1)?.contiguous()?.reshape((rows, length, inner))?;
        Ok((results, matrix))
    }
}
