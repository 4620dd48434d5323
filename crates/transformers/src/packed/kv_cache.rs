//! The keys and values that a decoder-only model keeps of sequences.

use std::sync::Arc;

use sporran_checkpoint::Result;

use super::steps::{Steps, select};

/// The sizes of a model's attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    /// Heads of queries.
    pub(super) heads: usize,
    /// Heads of keys and values, each of which serves the same number of heads that follow each other.
    pub(super) groups: usize,
    /// The width of a head.
    pub(super) width: usize,
}

impl Heads {
    /// The width of a position's keys and values.
    pub(super) fn kept(self) -> usize {
        2 * self.groups * self.width
    }

    /// Heads that share a group.
    pub(super) fn each(self) -> usize {
        self.heads / self.groups
    }

    /// Writes the keys and values of a row of inputs: each group's key and then its value.
    pub(super) fn keep(self, inputs: &[f32], out: &mut [f32]) {
        let keys = self.heads * self.width;
        let values = keys + self.groups * self.width;
        for (group, out) in out.chunks_exact_mut(2 * self.width).enumerate() {
            out[..self.width].copy_from_slice(&inputs[keys + group * self.width..][..self.width]);
            out[self.width..].copy_from_slice(&inputs[values + group * self.width..][..self.width]);
        }
    }
}

/// The keys and values of partial sequences: of their prompts, which beams share, and of the steps after them. Recurrent layers
/// have a state instead.
#[derive(Clone, Debug)]
pub(crate) struct KvCache {
    prompts: Vec<Arc<Prompt>>,
    pub(super) steps: Steps,
    /// The states of each sequence, which beams share until one of them changes it.
    states: Vec<Arc<States>>,
}

/// The states of a sequence's recurrent layers, by layer; empty for others.
pub(super) type States = Vec<Vec<f32>>;

#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) length: usize,
    /// For each layer, position after position; empty for a recurrent layer, and for one with the keys of an earlier one.
    pub(super) layers: Vec<Vec<f32>>,
    /// The states after the last position.
    pub(super) states: States,
}

impl Prompt {
    /// A prompt that no layer has read.
    pub(super) fn new(length: usize) -> Self {
        Self { length, layers: Vec::new(), states: Vec::new() }
    }

    /// Forgets what the last layer that has read it has kept.
    pub(super) fn forget_last(&mut self) {
        for last in [self.layers.last_mut(), self.states.last_mut()].into_iter().flatten() {
            *last = Vec::new();
        }
    }
}

impl KvCache {
    /// The cache of prompts before the first step.
    pub(super) fn new(mut prompts: Vec<Prompt>, layers: usize) -> Self {
        let steps = Steps::new(layers, prompts.len());
        let states = prompts.iter_mut().map(|prompt| Arc::new(std::mem::take(&mut prompt.states))).collect();
        Self { prompts: prompts.into_iter().map(Arc::new).collect(), steps, states }
    }

    /// The states of all sequences in `layer`, to be changed.
    pub(super) fn states_mut(&mut self, layer: usize) -> Vec<&mut [f32]> {
        self.states.iter_mut().map(|states| Arc::make_mut(states)[layer].as_mut_slice()).collect()
    }

    /// The number of sequences.
    pub(crate) fn rows(&self) -> usize {
        self.steps.sequences()
    }

    /// The number of tokens of each sequence.
    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.prompts.iter().enumerate().map(|(row, prompt)| prompt.length + self.steps.length(row))
    }

    /// The tokens of the longest sequence.
    pub(crate) fn length(&self) -> usize {
        self.lengths().max().unwrap_or(0)
    }

    /// Makes row `i` the continuation of the previous row `rows[i]`.
    pub(crate) fn select(&mut self, rows: &[u32]) -> Result<()> {
        self.prompts = select(&self.prompts, rows, "rows")?;
        self.states = select(&self.states, rows, "rows")?;
        self.steps.select(rows)
    }

    /// Appends the rows of another cache of the same model.
    pub(crate) fn join(&mut self, other: Self) {
        self.prompts.extend(other.prompts);
        self.states.extend(other.states);
        self.steps.join(other.steps);
    }

    /// Frees memory of rows that are gone.
    pub(crate) fn compact(&mut self) {
        self.steps.compact();
    }

    /// The cached keys and values of a group that `row` attends to in `layer`, oldest first.
    pub(super) fn seen(&self, layer: usize, row: usize, group: usize, heads: Heads) -> Vec<&[f32]> {
        let part = 2 * heads.width;
        let prompt = self.prompts[row].layers[layer].chunks_exact(heads.kept());
        prompt.chain(self.steps.of(layer, row)).map(|kept| &kept[group * part..][..part]).collect()
    }
}
