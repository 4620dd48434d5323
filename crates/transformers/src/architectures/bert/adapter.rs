//! X-MOD's adapters (Pfeiffer et al. 2022): two layers after the feed-forward part, which each language has its own of.

use candle_core::Tensor;
use candle_nn::VarBuilder;
use sporran_checkpoint::Result;

use super::config::BertConfig;
use crate::{
    layers::{Activation, LayerNorm, Linear},
    mode::Mode,
};

/// The adapters of a model, of which those of one language are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanguageAdapters {
    /// The code of the language.
    pub language: String,
    /// The width of the states over the inner width of an adapter.
    pub reduction: usize,
    /// What an adapter's input is normalised by.
    pub norm: AdapterNorm,
    /// Whether the result of an adapter is added to its normalised input, and not to the states before.
    pub adds_to_normed: bool,
    /// Whether each part reads normalised states, and the last states are normalised.
    pub norms_first: bool,
}

/// The norm of an adapter's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterNorm {
    /// There is none.
    None,
    /// It has weights of its own.
    Own,
    /// It is that of the feed-forward part.
    Shared,
}

/// The norm of adapters' inputs, in a layer.
pub(crate) const ADAPTER_NORM: &str = "output.adapter_layer_norm";

impl LanguageAdapters {
    /// The names of the two layers, in a layer of the model.
    pub(crate) fn names(&self) -> [String; 2] {
        ["dense1", "dense2"].map(|name| format!("output.adapter_modules.{}.{name}", self.language))
    }

    /// The inner width of adapters in a model of this width.
    pub(crate) fn inner(&self, width: usize) -> usize {
        width.checked_div(self.reduction).unwrap_or(0)
    }
}

/// The adapter of a layer.
#[derive(Debug, Clone)]
pub(super) struct Adapter {
    norm: Option<LayerNorm>,
    adds_to_normed: bool,
    inner: Linear,
    activation: Activation,
    outer: Linear,
    dropout: f64,
}

impl Adapter {
    /// That of the layer under `vb`, whose feed-forward part has the norm `shared`.
    pub(super) fn new(
        config: &BertConfig,
        adapters: &LanguageAdapters,
        shared: &LayerNorm,
        vb: &VarBuilder,
    ) -> Result<Self> {
        let (width, std) = (config.hidden_size, config.initializer_range);
        let inner = adapters.inner(width);
        let [first, second] = adapters.names();
        Ok(Self {
            norm: match adapters.norm {
                AdapterNorm::None => None,
                AdapterNorm::Own => Some(LayerNorm::new(width, config.layer_norm_eps, &vb.pp(ADAPTER_NORM))?),
                AdapterNorm::Shared => Some(shared.clone()),
            },
            adds_to_normed: adapters.adds_to_normed,
            inner: Linear::with_bias(width, inner, std, &vb.pp(first))?,
            activation: config.activation()?,
            outer: Linear::with_bias(inner, width, std, &vb.pp(second))?,
            dropout: config.hidden_dropout_prob,
        })
    }

    /// The states `xs` after the feed-forward part, adapted.
    pub(super) fn forward(&self, xs: &Tensor, mode: &mut Mode) -> Result<Tensor> {
        let normed = match &self.norm {
            Some(norm) => norm.forward(xs, mode)?,
            None => xs.clone(),
        };
        let ys = self.activation.forward(&self.inner.forward(&normed)?)?;
        let ys = mode.dropout(self.outer.forward(&ys)?, self.dropout)?;
        Ok((ys + if self.adds_to_normed { &normed } else { xs })?)
    }
}
