//! LSTMs that read sequences in both directions (Hochreiter and Schmidhuber 1997; Graves and Schmidhuber 2005), as PyTorch's
//! `nn.LSTM` has them, with gradients by hand.
//!
//! Sequences are packed: a step processes only sequences that are long enough, and the input part of the gates is one product
//! over all tokens. The two directions of a layer run in parallel.

mod direction;
mod packing;

use std::collections::HashMap;

use candle_core::Tensor;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{Error, Result};
use sporran_kernels::{Dropout, Isa, Rows};

use sporran_checkpoint::stored_values;

use direction::{Activations, Direction, PackedDirection, WEIGHTS};
use packing::Packing;

/// The shape of an LSTM that reads in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LstmOptions {
    /// The width of its inputs.
    pub inputs: usize,
    /// Cells of each direction; states are twice as wide.
    pub hidden: usize,
    /// Layers, each over the states of the one below.
    pub layers: usize,
    /// The share of the states between layers that training drops.
    pub dropout: f64,
}

impl LstmOptions {
    /// The width of its states.
    #[must_use]
    pub fn width(&self) -> usize {
        self.hidden.saturating_mul(2)
    }

    /// The input width of layer `at`.
    fn inputs_of(&self, at: usize) -> usize {
        if at == 0 { self.inputs } else { self.width() }
    }

    /// Checks that it has cells.
    ///
    /// # Errors
    /// [`Error::Options`].
    pub fn check(&self) -> Result<()> {
        let counts = [("inputs", self.inputs), ("hidden", self.hidden), ("layers", self.layers)];
        if let Some((option, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(Error::Options { option, expected: "at least 1".into(), found: "0".into() });
        }
        if !(0.0..1.0).contains(&self.dropout) {
            let expected = "at least 0 and below 1".into();
            return Err(Error::Options { option: "dropout", expected, found: self.dropout.to_string() });
        }
        Ok(())
    }

    /// The names and shapes of its weights under `name`, as PyTorch has them.
    #[must_use]
    pub fn parameters(&self, name: &str) -> Vec<(String, Vec<usize>)> {
        let gates = self.hidden.saturating_mul(4);
        let mut found = Vec::new();
        for layer in 0..self.layers {
            for ending in ["", "_reverse"] {
                for weight in WEIGHTS {
                    let shape = match weight {
                        "weight_ih" => vec![gates, self.inputs_of(layer)],
                        "weight_hh" => vec![gates, self.hidden],
                        _ => vec![gates],
                    };
                    found.push((format!("{name}.{weight}_l{layer}{ending}"), shape));
                }
            }
        }
        found
    }
}

/// The outputs of a forward pass through an LSTM, and the activations for the backward pass.
#[derive(Debug)]
pub struct LstmPass {
    packing: Packing,
    packed: PackedBiLstm,
    kept: Vec<[Activations; 2]>,
    dropouts: Vec<Dropout>,
    states: Vec<f32>,
}

/// The gradients of a pass.
#[derive(Debug)]
pub struct LstmGradients {
    /// Of the weights, in the order of [`LstmOptions::parameters`].
    pub weights: Vec<Vec<f32>>,
    /// The gradient of the inputs, (tokens, inputs).
    pub xs: Vec<f32>,
}

impl LstmPass {
    /// The states, (tokens, 2 hidden): those of the way forth, then those of the way back.
    #[must_use]
    pub fn states(&self) -> &[f32] {
        &self.states
    }

    /// Goes back from the gradient of the states. `weight` gives the weights that the pass was made with, by their numbers in
    /// [`LstmOptions::parameters`].
    ///
    /// # Errors
    /// [`Error::Batch`] where `to_states` is not as long as the states, and those of `weight`.
    pub fn backward(
        self,
        to_states: &[f32],
        weight: impl Fn(usize) -> Result<Vec<f32>>,
    ) -> Result<LstmGradients> {
        let Self { packing, packed, kept, dropouts, states } = self;
        if to_states.len() != states.len() {
            return Err(Error::Batch {
                expected: format!("the gradient of {} values", states.len()),
                found: to_states.len().to_string(),
            });
        }
        let mut to_weights = vec![Vec::new(); 8 * packed.layers.len()];
        let mut to_states = to_states.to_vec();
        for (layer, kept) in kept.into_iter().enumerate().rev() {
            let inputs = packed.options.inputs_of(layer);
            let width = packed.options.hidden;
            let directions = &packed.layers[layer];
            let first = 8 * layer;
            let weights = |direction: usize| -> Result<[Vec<f32>; 2]> {
                let at = first + 4 * direction;
                Ok([weight(at)?, weight(at + 1)?])
            };
            let weights = [weights(0)?, weights(1)?];
            let back = |direction: usize, kept: Activations| {
                direction::backward(
                    &weights[direction],
                    (inputs, width),
                    kept,
                    &packing,
                    direction,
                    (&to_states, directions.len() * width),
                )
            };
            let [forth, reverse] = kept;
            let (forth, reverse) = rayon::join(|| back(0, forth), || back(1, reverse));
            let mut to_xs = vec![0.0; packing.tokens() * inputs];
            for (direction, result) in [forth, reverse].into_iter().enumerate() {
                for (token, to_x) in to_xs.chunks_exact_mut(inputs).enumerate() {
                    let row = &result.to_xs[packing.row(direction, token) * inputs..][..inputs];
                    to_x.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
                }
                let sums = [result.input, result.recurrent, result.bias.clone(), result.bias];
                for (weight, sums) in sums.into_iter().enumerate() {
                    to_weights[first + 4 * direction + weight] = sums;
                }
            }
            dropouts[layer].apply(Isa::detected(), 0, &mut to_xs);
            to_states = to_xs;
        }
        Ok(LstmGradients { weights: to_weights, xs: to_states })
    }
}

/// An LSTM for inference, its weights packed.
#[derive(Debug)]
pub struct PackedBiLstm {
    options: LstmOptions,
    layers: Vec<[PackedDirection; 2]>,
}

impl PackedBiLstm {
    /// Takes the weights under `name` from `tensors`.
    ///
    /// # Errors
    /// [`Error::Options`] for a shape without cells, and [`Error::Stored`] where a tensor is missing or has another shape.
    pub fn open(options: LstmOptions, name: &str, tensors: &HashMap<String, Tensor>) -> Result<Self> {
        options.check()?;
        // Each layer has tensors: where there are more layers than tensors, one of the first is missed.
        let options = LstmOptions { layers: options.layers.min(tensors.len() + 1), ..options };
        let parameters = options.parameters(name);
        Self::new(options, |at| stored_values(tensors, &parameters[at].0, &parameters[at].1))
    }

    /// Packs the weights that `weight` gives by their numbers in [`LstmOptions::parameters`].
    ///
    /// # Errors
    /// Those of `weight`.
    pub fn new(options: LstmOptions, weight: impl Fn(usize) -> Result<Vec<f32>>) -> Result<Self> {
        let mut layers = Vec::with_capacity(options.layers);
        for layer in 0..options.layers {
            let one = |direction: usize| -> Result<PackedDirection> {
                let at = 8 * layer + 4 * direction;
                let weights = [weight(at)?, weight(at + 1)?, weight(at + 2)?, weight(at + 3)?];
                Ok(PackedDirection::new(&weights, options.inputs_of(layer), options.hidden))
            };
            layers.push([one(0)?, one(1)?]);
        }
        Ok(Self { options, layers })
    }

    /// The shape.
    #[must_use]
    pub fn options(&self) -> &LstmOptions {
        &self.options
    }

    /// The hidden states (tokens, 2 hidden) of sequences. `xs` (tokens, inputs) holds their tokens, sequence after sequence.
    /// The states of a sequence do not depend on the other sequences.
    ///
    /// # Errors
    /// [`Error::Batch`] where `xs` is not as long as the sequences.
    pub fn states(&self, xs: &[f32], lengths: &[usize]) -> Result<Vec<f32>> {
        let packing = self.packing(xs, lengths)?;
        let none = vec![Dropout::new(0.0, 0); self.options.layers];
        Ok(self.run(xs, &packing, &none, |_| {}))
    }

    /// Reads sequences as [`states`](Self::states) does, and keeps the activations for the backward pass. Dropout between the layers
    /// is sampled from `seed`; without one there is none.
    ///
    /// # Errors
    /// [`Error::Batch`] where `xs` is not as long as the sequences.
    pub fn pass(self, xs: &[f32], lengths: &[usize], seed: Option<u64>) -> Result<LstmPass> {
        let packing = self.packing(xs, lengths)?;
        let dropout = |layer: usize| {
            let rate = if layer == 0 || seed.is_none() { 0.0 } else { self.options.dropout };
            let seed = seed.unwrap_or(0) ^ (layer as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            Dropout::new(rate, seed)
        };
        let dropouts: Vec<Dropout> = (0..self.options.layers).map(dropout).collect();
        let mut kept = Vec::new();
        let states = self.run(xs, &packing, &dropouts, |layer| kept.push(layer));
        Ok(LstmPass { packing, packed: self, kept, dropouts, states })
    }

    fn packing(&self, xs: &[f32], lengths: &[usize]) -> Result<Packing> {
        let tokens: usize = lengths.iter().sum();
        if xs.len() != tokens * self.options.inputs {
            return Err(Error::Batch {
                expected: format!("{tokens} tokens of {} values", self.options.inputs),
                found: format!("{} values", xs.len()),
            });
        }
        Ok(Packing::new(lengths))
    }

    fn run(
        &self,
        xs: &[f32],
        packing: &Packing,
        dropouts: &[Dropout],
        mut keep: impl FnMut([Activations; 2]),
    ) -> Vec<f32> {
        let mut states: Vec<f32> = Vec::new();
        for (layer, (directions, dropout)) in self.layers.iter().zip(dropouts).enumerate() {
            if layer > 0 {
                dropout.apply(Isa::detected(), 0, &mut states);
            }
            let read = if layer == 0 { xs } else { &states };
            let forward = |at: usize| Direction { packed: &directions[at], at }.forward(read, packing);
            let (forth, back) = rayon::join(|| forward(0), || forward(1));
            let width = self.options.width();
            let mut next = vec![0.0; packing.tokens() * width];
            for (token, state) in next.chunks_exact_mut(width).enumerate() {
                let (first, second) = state.split_at_mut(self.options.hidden);
                first.copy_from_slice(forth.out.row(packing.row(0, token)));
                second.copy_from_slice(back.out.row(packing.row(1, token)));
            }
            keep([forth, back]);
            states = next;
        }
        states
    }
}

/// Rows of zeros, one for each of the longest step's sequences.
fn carried(packing: &Packing, width: usize) -> Rows {
    Rows::new(packing.sequences(), width)
}
