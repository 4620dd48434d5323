//! Embeddings of tokens that each layer has of its own (Gemma Team 2025, "per-layer embeddings"), over candle.

use candle_core::Tensor;
use candle_nn::VarBuilder;
use sporran_checkpoint::Result;

use super::{
    config::LlamaConfig, derived::Gate, feed_forward::linear, layer::scaled, names::LAYER_INPUTS, norm::Norm,
};
use crate::{
    architectures::wrong::wrong,
    layers::{Activation, Embedding, Linear},
    mode::Mode,
};

/// The embeddings of all layers.
#[derive(Debug, Clone)]
pub(super) struct LayerTable {
    /// (vocabulary, layers * width)
    table: Embedding,
    /// What the model's embeddings give for all layers.
    projection: Linear,
    /// The norm of what they give for a layer.
    norm: Norm,
    width: usize,
    /// Whether tokens without embeddings have those of the first token, where they are an error otherwise.
    replaces_others: bool,
    /// The factors of the embeddings and of the projection.
    scales: [f64; 2],
}

impl LayerTable {
    /// Embeddings of this `width`, whose tensors are under `vb`.
    pub(super) fn new(config: &LlamaConfig, width: usize, vb: &VarBuilder) -> Result<Self> {
        let (all, rows) = (config.num_hidden_layers * width, config.vocab_size_per_layer_input.unwrap_or(0));
        let std = config.initializer_range;
        Ok(Self {
            table: Embedding::new(rows, all, std, &vb.pp(LAYER_INPUTS.table))?,
            projection: linear(config, (config.hidden_size, all), false, &vb.pp(LAYER_INPUTS.projection))?,
            norm: Norm::new(config, width, &vb.pp(LAYER_INPUTS.norm))?,
            width,
            replaces_others: config.streams().is_some(),
            scales: [(width as f64).sqrt(), (config.hidden_size as f64).powf(-0.5)],
        })
    }

    /// What each layer reads (r, t, layers, width) of `ids` (r, t), whose embeddings in the model are `xs` (r, t, d).
    pub(super) fn forward(&self, ids: &Tensor, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        let (rows, length) = ids.dims2()?;
        let by_layer = |xs: Tensor| xs.reshape((rows, length, (), self.width));
        let [own, projected] = self.scales;
        let ids = match self.replaces_others {
            true => (ids * ids.lt(self.table.table().dim(0)? as u32)?.to_dtype(ids.dtype())?)?,
            false => ids.clone(),
        };
        let own = by_layer(scaled(self.table.forward(&ids)?, own)?)?;
        let projected = by_layer(scaled(self.projection.forward(xs)?, projected)?)?;
        scaled((self.norm.forward(&projected, mode)? + own)?, 0.5f64.sqrt())
    }
}

/// What a layer adds to the states of its own embeddings.
#[derive(Debug, Clone)]
pub(super) struct LayerInput {
    gate: Linear,
    activation: Activation,
    outer: Linear,
    norm: Norm,
}

impl LayerInput {
    /// That of a layer with embeddings of this `width`, whose tensors are under `vb`.
    pub(super) fn new(config: &LlamaConfig, width: usize, vb: &VarBuilder) -> Result<Self> {
        let states = config.hidden_size;
        let Gate::Plain(activation) = config.gate()? else {
            return Err(wrong("hidden_activation", "an activation without parameters", "another"));
        };
        Ok(Self {
            gate: linear(config, (states, width), false, &vb.pp(LAYER_INPUTS.gate))?,
            activation,
            outer: linear(config, (width, states), false, &vb.pp(LAYER_INPUTS.outer))?,
            norm: Norm::new(config, states, &vb.pp(LAYER_INPUTS.outer_norm))?,
        })
    }

    /// What the layer's embeddings `own` (r, t, width) add to states, of those `xs` (r, t, d).
    pub(super) fn forward(&self, xs: &Tensor, own: &Tensor, mode: &Mode) -> Result<Tensor> {
        let gate = self.activation.forward_fused(&self.gate.forward(xs)?, mode)?;
        let result = self.outer.forward(&(gate * own)?)?;
        self.norm.forward(&result, mode)
    }
}
