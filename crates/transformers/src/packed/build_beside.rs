//! Packs what layers of Gemma 3n and Gemma 4 have beside attention and a feed-forward part.

use sporran_checkpoint::Result;
use sporran_kernels::Precision;

use super::{
    beside::Beside,
    build_causal::Source,
    causal::{Alternating, LayerInput, LayerTable, Streams},
    packer::named,
};
use crate::architectures::{
    llama::{ALTERNATING, BESIDE, Experts, Gate, LAYER_INPUTS, StreamSizes},
    wrong::wrong,
};

impl Source<'_, '_> {
    /// The experts beside the feed-forward part of the layer under `at`.
    pub(super) fn beside(&mut self, sizes: Experts, at: &str) -> Result<Beside> {
        let width = self.config.hidden_size;
        let root = (width as f32).powf(-0.5);
        let mut router_norm = self.plain_norm(width);
        router_norm.weight = self.packer.values(&format!("{at}.{}", BESIDE.router_scale))?;
        router_norm.weight.iter_mut().for_each(|scale| *scale *= root);
        let [before, after, dense] = BESIDE.norms.map(|name| format!("{at}.{name}"));
        let norms = [self.norm(&before)?, self.norm(&after)?, self.norm(&dense)?];
        Ok(Beside { router_norm, mixture: self.mixture(sizes, at)?, norms })
    }

    /// The embeddings of this `width` that layers have of their own, in the body.
    pub(super) fn layer_table(&mut self, width: usize, body: &str) -> Result<LayerTable> {
        let [table, projection, norm] = [LAYER_INPUTS.table, LAYER_INPUTS.projection, LAYER_INPUTS.norm]
            .map(|name| format!("{body}.{name}"));
        let (states, all) = (self.config.hidden_size, self.config.num_hidden_layers * width);
        Ok(LayerTable {
            table: self.packer.table(&format!("{table}.weight"), all)?,
            projection: self.packer.linear(&[projection], states, false)?,
            norm: self.norm_of(&norm, width)?,
            scales: [(width as f32).sqrt(), (states as f32).powf(-0.5)],
            replaces_others: self.config.streams().is_some(),
        })
    }

    /// What the embeddings of this `width` of the layer under `at` add to the states.
    pub(super) fn layer_input(&mut self, width: usize, at: &str) -> Result<LayerInput> {
        let Gate::Plain(activation) = self.config.gate()? else {
            return Err(wrong("hidden_activation", "an activation without parameters", "another"));
        };
        Ok(LayerInput {
            gate: self.packer.linear(&named(at, &[LAYER_INPUTS.gate]), self.config.hidden_size, false)?,
            activation: activation.into(),
            outer: self.packer.linear(&named(at, &[LAYER_INPUTS.outer]), width, false)?,
            norm: self.norm(&format!("{at}.{}", LAYER_INPUTS.outer_norm))?,
        })
    }

    /// The projections between embeddings and streams, in the body.
    pub(super) fn streams(&mut self, sizes: StreamSizes, body: &str) -> Result<Streams> {
        let width = self.config.hidden_size;
        let [inner, outer] = ALTERNATING.projections.map(|name| {
            let one = |at: usize| self.packer.linear(&[format!("{body}.{name}.{at}")], width, false);
            (0..sizes.count - 1).map(one).collect::<Result<Vec<_>>>()
        });
        Ok(Streams { projections: [inner?, outer?] })
    }

    /// What the layer under `at` does with streams.
    pub(super) fn alternating(&mut self, sizes: StreamSizes, at: &str) -> Result<Alternating> {
        let (width, count) = (self.config.hidden_size, sizes.count);
        let mut router_norm = self.norm(&format!("{at}.{}", ALTERNATING.router_norm))?;
        router_norm.weight.iter_mut().for_each(|weight| *weight /= width as f32);
        let [left, right] = ALTERNATING.residual;
        let residual = [
            self.packer.linear(&named(at, &[left]), width, false)?,
            self.packer.linear(&named(at, &[right]), sizes.rank, false)?,
        ];
        let residual_norm = self.norm(&format!("{at}.{}", ALTERNATING.residual_norm))?;
        let scale = match sizes.is_scaled {
            true => self.packer.values(&format!("{at}.{}", ALTERNATING.scale))?,
            false => Vec::new(),
        };
        // Coefficients are few: they are not rounded.
        let precision = std::mem::replace(&mut self.packer.precision, Precision::F32);
        let mut layer = |name: &str, inputs: usize| self.packer.linear(&named(at, &[name]), inputs, false);
        let router = layer(ALTERNATING.router, width)?;
        let before = layer(ALTERNATING.before, count)?;
        let after = layer(ALTERNATING.after, count)?;
        self.packer.precision = precision;
        Ok(Alternating { sizes, router_norm, router, before, after, scale, residual, residual_norm })
    }
}
