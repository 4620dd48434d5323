//! Gated short convolutions (LFM2): a token reads the few before it in each channel.

use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{
    config::LlamaConfig,
    feed_forward::linear,
    linear_attention::{CONVOLUTION, ConvolutionSizes},
};
use crate::{
    cache::{Kept, LayerCache},
    causal::{Alignment, short_convolution},
    layers::Linear,
    mode::Mode,
};

/// A layer's convolution, with gates before and after it.
#[derive(Debug, Clone)]
pub(super) struct Convolution {
    /// Gates of inputs, gates of results, and inputs side by side.
    inputs: Linear,
    /// The weights of the convolution (channels, 1, kernel), and its biases.
    weights: Tensor,
    bias: Option<Tensor>,
    output: Linear,
}

impl Convolution {
    pub(super) fn new(config: &LlamaConfig, sizes: ConvolutionSizes, vb: &VarBuilder) -> Result<Self> {
        let (width, has_bias) = (config.hidden_size, sizes.has_bias);
        let init = Init::Randn { mean: 0.0, stdev: config.initializer_range };
        let own = vb.pp(CONVOLUTION.convolution);
        let bias = has_bias.then(|| own.get_with_hints(width, "bias", Init::Const(0.0)));
        Ok(Self {
            inputs: linear(config, (width, 3 * width), has_bias, &vb.pp(CONVOLUTION.inputs))?,
            weights: own.get_with_hints((width, 1, sizes.kernel), "weight", init)?,
            bias: bias.transpose()?,
            output: linear(config, (width, width), has_bias, &vb.pp(CONVOLUTION.output))?,
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
        let all = self.inputs.forward(xs)?.chunk(3, 2)?;
        let inputs = alignment.without_padding(&(&all[0] * &all[2])?)?;
        let before = kept.state(mode).map(|kept| kept.window);
        let (sums, window) =
            short_convolution(&inputs, before.as_ref(), (&self.weights, self.bias.as_ref()))?;
        kept.put_state(Kept { window, matrix: None }, mode);
        alignment.restore(&self.output.forward(&(&all[1] * sums)?)?)
    }
}
