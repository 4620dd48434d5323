//! Layers of packed decoders that keep a state of one size in the place of keys and values.

use std::ops::Range;

use sporran_kernels::Rows;

use super::{
    delta::Delta,
    layers::{Linear, Machine},
    short_convolution::ShortConvolution,
    state_space::StateSpace,
};

/// Such a layer without its output projection.
#[derive(Debug)]
pub(super) enum Recurrence {
    Delta(Box<Delta>),
    Convolution(GatedConvolution),
    StateSpace(Box<StateSpace>),
}

/// A short convolution with gates before and after it (LFM2).
#[derive(Debug)]
pub(super) struct GatedConvolution {
    /// Gates of inputs, gates of results, and inputs side by side.
    pub(super) inputs: Linear,
    pub(super) convolution: ShortConvolution,
}

impl Recurrence {
    /// The values of a sequence's state, which are zeros before its first token.
    pub(super) fn state(&self) -> usize {
        match self {
            Self::Delta(delta) => delta.state(),
            Self::Convolution(gated) => gated.convolution.window(),
            Self::StateSpace(space) => space.state(),
        }
    }

    /// The results of the rows of `source`, which are whole prompts, and the states after them. `blocks` are the rows of each.
    pub(super) fn read(
        &self,
        machine: &mut Machine,
        source: &Rows,
        blocks: &[Range<usize>],
        mixed: &mut Rows,
    ) -> Vec<Vec<f32>> {
        let mut states = vec![vec![0.0; self.state()]; blocks.len()];
        let mut all: Vec<&mut [f32]> = states.iter_mut().map(Vec::as_mut_slice).collect();
        self.forward(machine, source, blocks, &mut all, mixed);
        states
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
        match self {
            Self::Delta(delta) => delta.forward(machine, source, blocks, states, mixed),
            Self::Convolution(gated) => gated.forward(machine, source, blocks, states, mixed),
            Self::StateSpace(space) => space.forward(machine, source, blocks, states, mixed),
        }
    }
}

impl GatedConvolution {
    fn forward(
        &self,
        machine: &mut Machine,
        source: &Rows,
        blocks: &[Range<usize>],
        windows: &mut [&mut [f32]],
        mixed: &mut Rows,
    ) {
        let mut all = Rows::default();
        self.inputs.forward(machine, source, &mut all);
        let width = all.width() / 3;
        let mut inputs = Rows::new(all.count(), width);
        for row in 0..all.count() {
            let own = all.row(row);
            let values = own[..width].iter().zip(&own[2 * width..]);
            inputs.row_mut(row).iter_mut().zip(values).for_each(|(out, (gate, input))| *out = gate * input);
        }
        self.convolution.forward(machine, &inputs, blocks, windows, mixed, &|row, out| {
            let gates = &all.row(row)[width..2 * width];
            out.iter_mut().zip(gates).for_each(|(out, gate)| *out *= gate);
        });
    }
}
