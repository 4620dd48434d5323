//! The convolution over the embeddings that some DeBERTas (version 2, xlarge and xxlarge) add to the states after the first layer.

use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::config::BertConfig;
use crate::{
    architectures::wrong::wrong,
    layers::{Activation, LayerNorm, Linear},
    mode::Mode,
};

/// Its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvolutionSettings {
    /// The number of tokens that a token reads, itself in the middle.
    pub kernel: usize,
    /// The name of its activation.
    pub activation: String,
}

impl ConvolutionSettings {
    pub(crate) fn function(&self) -> Result<Activation> {
        Activation::named(&self.activation)
            .ok_or_else(|| wrong("conv_act", "a known activation", &self.activation))
    }

    /// Checks constraints beyond the types.
    pub(super) fn check(&self) -> Result<()> {
        if self.kernel.is_multiple_of(2) {
            return Err(wrong("conv_kernel_size", "an odd number, or 0", &self.kernel.to_string()));
        }
        self.function().map(|_| ())
    }
}

/// `norm(states + activation(convolution of embeddings))`
#[derive(Debug, Clone)]
pub(super) struct StateConvolution {
    /// (d, d, kernel)
    weight: Tensor,
    /// (d)
    bias: Tensor,
    norm: LayerNorm,
    function: Activation,
    dropout: f64,
}

impl StateConvolution {
    /// That of an encoder whose convolution `vb` has.
    pub(super) fn new(config: &BertConfig, settings: &ConvolutionSettings, vb: &VarBuilder) -> Result<Self> {
        let width = config.hidden_size;
        let normal = Init::Randn { mean: 0.0, stdev: config.initializer_range };
        Ok(Self {
            weight: vb.get_with_hints((width, width, settings.kernel), "conv.weight", normal)?,
            bias: vb.get_with_hints(width, "conv.bias", Init::Const(0.0))?,
            norm: LayerNorm::new(width, config.layer_norm_eps, &vb.pp("LayerNorm"))?,
            function: settings.function()?,
            dropout: config.hidden_dropout_prob,
        })
    }

    /// The states `xs` (b, t, d) with the convolution of the embeddings (b, t, d), of which `mask` (b, t) hides padding.
    pub(super) fn forward(
        &self,
        embeddings: &Tensor,
        xs: &Tensor,
        mask: &Tensor,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let (kernel, length) = (self.weight.dim(2)?, xs.dim(1)?);
        let mask = mask.unsqueeze(2)?.to_dtype(xs.dtype())?;
        let side = kernel / 2;
        let padded = embeddings.broadcast_mul(&mask)?.pad_with_zeros(1, side, side)?;
        let part = |place: usize| -> Result<Tensor> {
            let weight = self.weight.narrow(2, place, 1)?.squeeze(2)?.contiguous()?;
            let bias = (place == 0).then(|| self.bias.clone());
            Linear::of(weight, bias).forward(&padded.narrow(1, place, length)?.contiguous()?)
        };
        let mut sum = part(0)?;
        for place in 1..kernel {
            sum = (sum + part(place)?)?;
        }
        let sum = mode.dropout(sum.broadcast_mul(&mask)?, self.dropout)?;
        self.norm.forward(&(xs + self.function.forward(&sum)?)?, mode)
    }
}
