//! Gated delta rules (Yang et al. 2025, "Gated Delta Networks"): each head keeps a matrix, which decays, and of which a new value
//! replaces what it has for a key.

use candle_core::{D, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{
    config::LlamaConfig,
    feed_forward::linear,
    linear_attention::{DELTA, DeltaSizes},
};
use crate::{
    cache::{Kept, LayerCache},
    causal::{Alignment, short_convolution, softplus, wide},
    layers::{Activation, Linear, RmsNorm},
    mode::Mode,
};

/// Added to the square of a query's or a key's length before its root is taken.
pub(crate) const LENGTH_EPS: f64 = 1e-6;

/// A layer's delta rule, with the convolution before it and the gate after it.
#[derive(Debug, Clone)]
pub(super) struct Delta {
    sizes: DeltaSizes,
    inputs: Inputs,
    /// The weights of the convolution (channels, 1, kernel).
    convolution: Tensor,
    /// The logarithms of the decays (heads of values), and what is added to their rates.
    decay: Tensor,
    bias: Tensor,
    activation: Activation,
    norm: RmsNorm,
    output: Linear,
}

/// The projections.
#[derive(Debug, Clone)]
enum Inputs {
    Apart {
        mixed: Linear,
        gate: Linear,
        rates: [Linear; 2],
    },
    /// All of a head of keys lies side by side: queries, keys, values and gates in one, and both rates in the other.
    ByHead {
        all: Linear,
        rates: Linear,
    },
}

/// What a state is made of.
struct Projected {
    /// Queries, keys and values (r, t, channels).
    mixed: Tensor,
    /// The gates of results (r, t, heads, width).
    gate: Tensor,
    /// How much of a value is stored, and how fast it decays (r, t, heads).
    rates: [Tensor; 2],
}

impl Delta {
    pub(super) fn new(config: &LlamaConfig, sizes: DeltaSizes, vb: &VarBuilder) -> Result<Self> {
        let width = config.hidden_size;
        let layer = |outputs: usize, name: &str| linear(config, (width, outputs), false, &vb.pp(name));
        let (heads, values) = (sizes.value_heads, sizes.values());
        let inputs = if sizes.is_by_head {
            let all = layer(sizes.channels() + values, DELTA.inputs_by_head)?;
            Inputs::ByHead { all, rates: layer(2 * heads, DELTA.rates_by_head)? }
        } else {
            let [stored, decay] = DELTA.rates;
            Inputs::Apart {
                mixed: layer(sizes.channels(), DELTA.inputs)?,
                gate: layer(values, DELTA.gate)?,
                rates: [layer(heads, stored)?, layer(heads, decay)?],
            }
        };
        let init = Init::Randn { mean: 0.0, stdev: config.initializer_range };
        let shape = (sizes.channels(), 1, sizes.kernel);
        Ok(Self {
            sizes,
            inputs,
            convolution: vb.get_with_hints(shape, DELTA.convolution, init)?,
            // Of decays from 0.01 to 16.
            decay: vb.get_with_hints(
                heads,
                DELTA.decay,
                Init::Uniform { lo: 0.01f64.ln(), up: 16f64.ln() },
            )?,
            bias: vb.get_with_hints(heads, DELTA.bias, Init::Const(1.0))?,
            activation: config.activation()?,
            norm: RmsNorm::new(sizes.value_width, config.norm_eps(), 1.0, &vb.pp(DELTA.norm))?,
            output: linear(config, (values, width), false, &vb.pp(DELTA.output))?,
        })
    }

    fn project(&self, xs: &Tensor) -> Result<Projected> {
        let DeltaSizes { key_heads, value_heads, value_width, .. } = self.sizes;
        let (rows, length, _) = xs.dims3()?;
        let heads = |gate: Tensor| gate.reshape((rows, length, value_heads, value_width));
        match &self.inputs {
            Inputs::Apart { mixed, gate, rates: [stored, decay] } => Ok(Projected {
                mixed: mixed.forward(xs)?,
                gate: heads(gate.forward(xs)?)?,
                rates: [stored.forward(xs)?, decay.forward(xs)?],
            }),
            Inputs::ByHead { all, rates } => {
                let all = all.forward(xs)?.reshape((rows, length, key_heads, ()))?;
                let (key, values) = (self.sizes.key_width, self.sizes.each() * value_width);
                let part = |from: usize, width: usize| {
                    all.narrow(3, from, width)?.contiguous()?.reshape((rows, length, key_heads * width))
                };
                let mixed = [part(0, key)?, part(key, key)?, part(2 * key, values)?];
                let both = rates.forward(xs)?.reshape((rows, length, key_heads, 2 * self.sizes.each()))?;
                let rate = |which: usize| {
                    let own = both.narrow(3, which * self.sizes.each(), self.sizes.each())?;
                    own.contiguous()?.reshape((rows, length, value_heads))
                };
                Ok(Projected {
                    mixed: Tensor::cat(&mixed, 2)?.contiguous()?,
                    gate: heads(part(2 * key + values, values)?)?,
                    rates: [rate(0)?, rate(1)?],
                })
            }
        }
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
        let Projected { mixed, gate, rates } = self.project(xs)?;
        let mixed = alignment.without_padding(&mixed)?;
        let before = kept.state(mode);
        let (mixed, window) =
            short_convolution(&mixed, before.as_ref().map(|kept| &kept.window), (&self.convolution, None))?;
        let mixed = self.activation.forward_fused(&mixed, mode)?;
        let (mixed, matrix) = self.recur(&mixed, &rates, alignment, before.and_then(|kept| kept.matrix))?;
        kept.put_state(Kept { window, matrix: Some(matrix) }, mode);
        let normed = self.norm.forward(&mixed.to_dtype(xs.dtype())?, mode)?;
        let result = (normed * gate.to_dtype(wide(xs))?.silu()?.to_dtype(xs.dtype())?)?;
        alignment.restore(&self.output.forward(&result.flatten_from(2)?)?)
    }

    /// The results (r, t, heads, width) of queries, keys and values `mixed` (r, t, channels), and the last matrices
    /// (r, heads, width of a key, width of a value); both in f32, or f64 where `mixed` has it.
    fn recur(
        &self,
        mixed: &Tensor,
        [stored, decay]: &[Tensor; 2],
        alignment: &Alignment,
        matrix: Option<Tensor>,
    ) -> Result<(Tensor, Tensor)> {
        let DeltaSizes { key_heads, value_heads, key_width, value_width, .. } = self.sizes;
        let (rows, length, _) = mixed.dims3()?;
        let dtype = wide(mixed);
        let mixed = mixed.to_dtype(dtype)?;
        // (t, r, heads, 1, width)
        let heads = |from: usize, count: usize, width: usize| {
            let own = mixed.narrow(2, from, count * width)?.reshape((rows, length, count, 1, width))?;
            own.transpose(0, 1)?.contiguous()
        };
        let unit = |xs: Tensor| -> Result<Tensor> {
            let length = (xs.sqr()?.sum_keepdim(D::Minus1)? + LENGTH_EPS)?.sqrt()?;
            Ok(xs.broadcast_div(&length)?)
        };
        let shared = |xs: Tensor| -> Result<Tensor> {
            let each = self.sizes.each();
            let all = xs.broadcast_as((length, rows, key_heads, each, key_width))?;
            Ok(all.reshape((length, rows, value_heads, 1, key_width))?)
        };
        let queries = (shared(unit(heads(0, key_heads, key_width)?)?)? * (key_width as f64).powf(-0.5))?;
        let own = self.sizes.keys();
        let keys = shared(unit(heads(own, key_heads, key_width)?)?)?;
        let values = heads(2 * own, value_heads, value_width)?;
        let stored = candle_nn::ops::sigmoid(&stored.to_dtype(dtype)?)?;
        let rate = decay.to_dtype(dtype)?.broadcast_add(&self.bias.to_dtype(dtype)?)?;
        let decay = softplus(&rate)?.broadcast_mul(&self.decay.to_dtype(dtype)?.exp()?)?.neg()?;
        // Padding stores nothing, and nothing decays.
        let (stored, decay) = (alignment.without_padding(&stored)?, alignment.without_padding(&decay)?);
        // (t, r, heads, 1, 1)
        let each = |xs: Tensor| -> Result<Tensor> {
            Ok(xs.reshape((rows, length, value_heads, 1, 1))?.transpose(0, 1)?.contiguous()?)
        };
        let (stored, decay) = (each(stored)?, each(decay.exp()?)?);
        let mut matrix = match matrix {
            Some(matrix) => matrix,
            None => Tensor::zeros((rows, value_heads, key_width, value_width), dtype, mixed.device())?,
        };
        let mut results = Vec::with_capacity(length);
        for at in 0..length {
            let (query, key, value) = (queries.get(at)?, keys.get(at)?, values.get(at)?);
            let decayed = matrix.broadcast_mul(&decay.get(at)?)?;
            let new = (value - key.matmul(&decayed)?)?.broadcast_mul(&stored.get(at)?)?;
            matrix = (decayed + key.transpose(2, 3)?.contiguous()?.matmul(&new)?)?;
            results.push(query.matmul(&matrix)?.squeeze(2)?);
        }
        Ok((Tensor::stack(&results, 1)?, matrix))
    }
}
