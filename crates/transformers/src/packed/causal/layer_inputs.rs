//! Embeddings of tokens that each layer has of its own (Gemma Team 2025, "per-layer embeddings"), and the factor of the states
//! after a layer.

use sporran_checkpoint::{Error, Result};
use sporran_kernels::{Activation, Norm, Rows, Table};

use super::{
    super::layers::{Linear, Machine},
    CausalLayer, PackedLlama,
};

/// The embeddings of all layers.
#[derive(Debug)]
pub(in super::super) struct LayerTable {
    /// (vocabulary, layers * width)
    pub(in super::super) table: Table,
    /// What the model's embeddings give for all layers.
    pub(in super::super) projection: Linear,
    /// The norm of what they give for a layer.
    pub(in super::super) norm: Norm,
    /// The factors of the embeddings and of the projection.
    pub(in super::super) scales: [f32; 2],
    /// Whether tokens without embeddings have those of the first token, where they are an error otherwise.
    pub(in super::super) replaces_others: bool,
}

/// What a layer adds to the states of its own embeddings.
#[derive(Debug)]
pub(in super::super) struct LayerInput {
    pub(in super::super) gate: Linear,
    pub(in super::super) activation: Activation,
    pub(in super::super) outer: Linear,
    pub(in super::super) norm: Norm,
}

impl LayerTable {
    /// What all layers read of `tokens`, whose embeddings in the model are the rows of `xs`.
    fn rows(&self, machine: &mut Machine, tokens: &[u32], xs: &Rows) -> Result<Rows> {
        let count = self.table.count();
        let unknown = tokens.iter().find(|token| **token as usize >= count);
        if let Some(token) = unknown.filter(|_| !self.replaces_others) {
            let expected = format!("token ids below {count}, which have embeddings in each layer");
            return Err(Error::Batch { expected, found: token.to_string() });
        }
        let mut out = Rows::default();
        self.projection.forward(machine, xs, &mut out);
        let (isa, all) = (machine.core.isa, out.width());
        let [own, projected] = self.scales;
        let blocks: Vec<_> = (0..tokens.len()).map(|row| row..row + 1).collect();
        out.each_part(machine.core.pool, &blocks, all, &|row, _, mut part| {
            let values = part.row_mut(0);
            let mut stored = vec![0.0; all];
            let token = tokens[row] as usize;
            self.table.row(if token < count { token } else { 0 }, &mut stored);
            values.iter_mut().for_each(|value| *value *= projected);
            values.chunks_exact_mut(self.norm.weight.len()).for_each(|layer| self.norm.one(isa, layer));
            let values = values.iter_mut().zip(stored);
            values.for_each(|(value, stored)| *value = (*value + own * stored) * 0.5f32.sqrt());
        });
        Ok(out)
    }
}

impl LayerInput {
    /// What layer `at` makes of its own part of `inputs` and the states `xs`.
    pub(super) fn forward(&self, machine: &mut Machine, at: usize, inputs: &Rows, xs: &Rows) -> Rows {
        let mut inner = Rows::default();
        self.gate.forward(machine, xs, &mut inner);
        let (isa, width) = (machine.core.isa, inner.width());
        let blocks: Vec<_> = (0..xs.count()).map(|row| row..row + 1).collect();
        inner.each_part(machine.core.pool, &blocks, width, &|row, _, mut part| {
            let values = part.row_mut(0);
            self.activation.forward(isa, values);
            let own = &inputs.row(row)[at * width..][..width];
            values.iter_mut().zip(own).for_each(|(value, own)| *value *= own);
        });
        let mut result = Rows::default();
        self.outer.forward(machine, &inner, &mut result);
        self.norm.forward(isa, machine.core.pool, &mut result);
        result
    }
}

impl PackedLlama {
    /// What all layers read of `tokens`, whose embeddings are the rows of `xs`; none where layers have no embeddings.
    pub(super) fn layer_inputs(
        &self,
        machine: &mut Machine,
        tokens: &[u32],
        xs: &Rows,
    ) -> Result<Option<Rows>> {
        self.layer_table.as_ref().map(|table| table.rows(machine, tokens, xs)).transpose()
    }

    /// Ends layer `at` with what its part of `inputs` adds to the states `xs` or to streams, and with their factor.
    pub(super) fn end_layer(
        &self,
        machine: &mut Machine,
        (at, layer): (usize, &CausalLayer),
        (inputs, streams): (Option<&Rows>, &mut [Rows]),
        xs: &mut Rows,
    ) {
        if self.streams.is_some() {
            return layer.end_streams(machine, (at, inputs), streams, xs);
        }
        if let (Some(input), Some(inputs)) = (&layer.input, inputs) {
            let added = input.forward(machine, at, inputs, xs);
            for row in 0..xs.count() {
                let values = xs.row_mut(row).iter_mut().zip(added.row(row));
                values.for_each(|(value, added)| *value += added);
            }
        }
        if let Some(scale) = layer.scale_after {
            for row in 0..xs.count() {
                xs.row_mut(row).iter_mut().for_each(|value| *value *= scale);
            }
        }
    }
}
