//! Experts beside a feed-forward part that every token reads (Gemma 4), over candle.

use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{
    config::LlamaConfig, experts::Experts, layer::scaled, mixture::Mixture, names::BESIDE, norm::Norm,
};
use crate::{layers::RmsNorm, mode::Mode};

/// The experts with their norms.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    /// The norm of the states that the router reads, and their scale (d) after it.
    router_norm: RmsNorm,
    router_scale: Tensor,
    /// One over the root of the width of the states.
    root: f64,
    mixture: Mixture,
    /// The norms of what experts read, of what they add, and of what the other part adds.
    norms: [Norm; 3],
}

impl Beside {
    /// The experts of a layer whose tensors are under `vb`.
    pub(super) fn new(config: &LlamaConfig, sizes: Experts, vb: &VarBuilder) -> Result<Self> {
        let width = config.hidden_size;
        let [before, after, dense] = BESIDE.norms.map(|name| Norm::new(config, width, &vb.pp(name)));
        Ok(Self {
            router_norm: RmsNorm::without_weights(width, config.norm_eps(), vb)?,
            router_scale: vb.get_with_hints(width, BESIDE.router_scale, Init::Const(1.0))?,
            root: (width as f64).powf(-0.5),
            mixture: Mixture::new(config, sizes, vb)?,
            norms: [before?, after?, dense?],
        })
    }

    /// What both parts make of states `xs` (r, t, d), where the other part makes `result` of them.
    pub(super) fn add(&self, xs: &Tensor, result: &Tensor, mode: &Mode) -> Result<Tensor> {
        let [before, after, dense] = &self.norms;
        let routed = self.router_norm.forward(xs, mode)?.broadcast_mul(&self.router_scale)?;
        let routed = scaled(routed, self.root)?;
        let added = self.mixture.forward_routed(&routed, &before.forward(xs, mode)?, mode)?;
        Ok((dense.forward(result, mode)? + after.forward(&added, mode)?)?)
    }
}
