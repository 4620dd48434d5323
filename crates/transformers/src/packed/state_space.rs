//! State space layers of packed rows.

use std::{ops::Range, sync::PoisonError};

use sporran_kernels::{Activation, Norm, Rows};

use super::{
    layers::{Linear, Machine, multiply},
    memory::{softplus, split, store_and_read},
    short_convolution::ShortConvolution,
};
use crate::architectures::llama::{GatedNorm, StateSpaceSizes};

/// A state space layer of Mamba 2 (Dao and Gu 2024) without its output projection. Its oracle is that of
/// [`Llama`](crate::Llama).
#[derive(Debug)]
pub(super) struct StateSpace {
    pub(super) sizes: StateSpaceSizes,
    /// Inputs, and the vectors of all groups that write and then those that read matrices, side by side.
    pub(super) inputs: Linear,
    /// The gates of results.
    pub(super) gate: Linear,
    /// The steps of all heads.
    pub(super) steps: Linear,
    pub(super) convolution: ShortConvolution,
    /// What the convolution's sums go through.
    pub(super) activation: Activation,
    /// For each head: the factor of the decay's rate, what is added to steps, and the factor of inputs in results.
    pub(super) decay: Vec<f32>,
    pub(super) bias: Vec<f32>,
    pub(super) skip: Vec<f32>,
    /// The norms of groups of heads, where there are some.
    pub(super) norms: Vec<Norm>,
}

impl StateSpace {
    /// The values of a sequence's state: the window of the convolution, and a matrix for each head.
    pub(super) fn state(&self) -> usize {
        self.convolution.window() + self.sizes.state * self.sizes.inner()
    }

    /// The results of the rows of `source`, whose sequences are `blocks`, each with its state.
    pub(super) fn forward(
        &self,
        machine: &mut Machine,
        source: &Rows,
        blocks: &[Range<usize>],
        states: &mut [&mut [f32]],
        mixed: &mut Rows,
    ) {
        let StateSpaceSizes { heads, head_width, groups, state, .. } = self.sizes;
        let (mut windows, matrices) = split(states, self.convolution.window(), state * head_width);
        let (mut raw, mut inputs) = (Rows::default(), Rows::default());
        self.inputs.forward(machine, source, &mut raw);
        let steps = self.steps.values(machine, source);
        let isa = machine.core.isa;
        let [gate_factor, .., step_factor] = self.sizes.factors.map(|factor| factor as f32);
        self.convolution.forward(machine, &raw, blocks, &mut windows, &mut inputs, &|_, row| {
            self.activation.forward(isa, row);
        });
        let inner = self.sizes.inner();
        mixed.reshape(source.count(), inner);
        mixed.each_part(machine.core.pool, blocks, head_width, &|block, head, mut part| {
            let matrix = &matrices[block * heads + head];
            let mut matrix = matrix.lock().unwrap_or_else(PoisonError::into_inner);
            let group = head / (heads / groups);
            let mut new = vec![0.0; head_width];
            for (at, row) in blocks[block].clone().enumerate() {
                let own = inputs.row(row);
                let values = &own[head * head_width..][..head_width];
                let vector = |which: usize| &own[inner + (which * groups + group) * state..][..state];
                let step = softplus(step_factor * steps[row * heads + head] + self.bias[head]);
                new.iter_mut().zip(values).for_each(|(new, value)| *new = step * value);
                let left = (-self.decay[head] * step).exp();
                let out = part.row_mut(at);
                store_and_read(&mut matrix, left, [vector(0), vector(1)], &new, out);
                out.iter_mut().zip(values).for_each(|(out, value)| *out += self.skip[head] * value);
            }
        });
        if self.sizes.norm == Some(GatedNorm::Before) {
            self.normalise(machine, mixed);
        }
        if gate_factor == 1.0 {
            self.gate.multiply(machine, source, Activation::Silu, mixed);
        } else {
            let mut gates = Rows::default();
            self.gate.forward(machine, source, &mut gates);
            multiply(&mut gates, gate_factor);
            for row in 0..gates.count() {
                Activation::Silu.forward(isa, gates.row_mut(row));
                let values = mixed.row_mut(row).iter_mut().zip(gates.row(row));
                values.for_each(|(value, gate)| *value *= gate);
            }
        }
        if self.sizes.norm == Some(GatedNorm::After) {
            self.normalise(machine, mixed);
        }
        multiply(mixed, self.sizes.result as f32);
    }

    /// Normalises each group of heads.
    fn normalise(&self, machine: &Machine, mixed: &mut Rows) {
        let rows: Vec<_> = (0..mixed.count()).map(|row| row..row + 1).collect();
        let (isa, width) = (machine.core.isa, self.sizes.inner() / self.sizes.groups);
        mixed.each_part(machine.core.pool, &rows, width, &|_, group, mut part| {
            self.norms[group].one(isa, part.row_mut(0));
        });
    }
}
