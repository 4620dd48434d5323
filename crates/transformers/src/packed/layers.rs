//! The layers of a packed transformer.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use sporran_kernels::{Activation, Matrix, Norm, Product, Rows, Store};

use super::function::Function;
use crate::architectures::t5::SwitchSizes;

/// The resources to run a model, and buffers for the states inside a layer.
#[derive(Debug, Default)]
pub(super) struct Machine {
    pub(super) core: sporran_kernels::Machine,
    pub(super) buffers: Buffers,
}

/// States inside a layer, in memory that every layer uses again.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub(super) normed: Rows,
    pub(super) inputs: Rows,
    pub(super) mixed: Rows,
    pub(super) inner: Rows,
}

/// Machines of a model that are not in use. Fresh memory is costly (the system clears it page by page), so a call
/// reuses the memory of the last one.
#[derive(Debug, Default)]
pub(super) struct Machines(Mutex<Vec<Machine>>);

impl Machines {
    /// Calls `work` with a machine.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Machine) -> T) -> T {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut machine = idle.unwrap_or_default();
        let result = work(&mut machine);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(machine);
        result
    }
}

/// A packed linear layer.
#[derive(Debug)]
pub(super) struct Linear {
    pub(super) matrix: Matrix,
    pub(super) bias: Option<Vec<f32>>,
}

impl Linear {
    fn product(&self, activation: Option<Activation>, store: Store) -> Product<'_> {
        Product { matrix: &self.matrix, bias: self.bias.as_deref(), activation, store }
    }

    /// The layer of all rows of `input`, as the rows of `out`.
    pub(super) fn forward(&self, machine: &mut Machine, input: &Rows, out: &mut Rows) {
        out.reshape(input.count(), self.matrix.outputs());
        self.write(machine, input, 0..input.count(), None, Store::Set, out, 0);
    }

    /// The layer of all rows of `input`, row after row.
    pub(super) fn values(&self, machine: &mut Machine, input: &Rows) -> Vec<f32> {
        self.product(None, Store::Set).values(&mut machine.core, input)
    }

    /// Adds the layer of all rows of `input` to the rows of `out`.
    pub(super) fn add(&self, machine: &mut Machine, input: &Rows, out: &mut Rows) {
        self.write(machine, input, 0..input.count(), None, Store::Add, out, 0);
    }

    /// Multiplies the rows of `out` by the activated layer of those of `input`.
    pub(super) fn multiply(&self, machine: &mut Machine, input: &Rows, by: Activation, out: &mut Rows) {
        self.write(machine, input, 0..input.count(), Some(by), Store::Multiply, out, 0);
    }

    #[allow(clippy::too_many_arguments, reason = "a product has an input, an output and two ways to end")]
    fn write(
        &self,
        machine: &mut Machine,
        input: &Rows,
        from: Range<usize>,
        activation: Option<Activation>,
        store: Store,
        out: &mut Rows,
        to: usize,
    ) {
        let product = self.product(activation, store);
        product.run(&mut machine.core, input, from, out, to);
    }
}

/// Multiplies all rows by a factor.
pub(super) fn multiply(rows: &mut Rows, factor: f32) {
    if factor != 1.0 {
        for row in 0..rows.count() {
            rows.row_mut(row).iter_mut().for_each(|value| *value *= factor);
        }
    }
}

/// Attention of positions to positions of the same sequence.
#[derive(Debug)]
pub(super) struct SelfAttention {
    /// Queries, keys and values side by side.
    pub(super) inputs: Linear,
    pub(super) output: Linear,
    pub(super) norm: Norm,
}

/// Attention of a decoder's positions to an encoder's states.
#[derive(Debug)]
pub(super) struct CrossAttention {
    pub(super) queries: Linear,
    /// Keys and values side by side.
    pub(super) sources: Linear,
    pub(super) output: Linear,
    pub(super) norm: Norm,
}

/// Two projections with a function between them, gated (Shazeer 2020) where there is a third.
#[derive(Debug)]
pub(super) struct Dense {
    pub(super) inner: Linear,
    pub(super) gated: Option<Linear>,
    pub(super) outer: Linear,
    pub(super) function: Function,
}

/// Such projections, or experts with them, and a norm.
#[derive(Debug)]
pub(super) struct FeedForward {
    pub(super) dense: FeedPart,
    pub(super) norm: Norm,
}

/// What the feed-forward part of a layer is.
#[derive(Debug)]
pub(super) enum FeedPart {
    /// Every token reads it.
    Dense(Dense),
    /// What is made of the states after it is added is read by another such part.
    Adapted(Dense, Box<Adapter>),
    /// Each token is read by one expert.
    Switch(Switch),
}

/// A part after the feed-forward part.
#[derive(Debug)]
pub(super) struct Adapter {
    /// The norm of its input.
    pub(super) norm: Option<Norm>,
    /// Whether it is added to its normalised input, and not to the states before.
    pub(super) adds_to_normed: bool,
    pub(super) dense: Dense,
}

impl Adapter {
    /// Adds the part of the states `xs` to them.
    fn add(&self, machine: &mut Machine, inner: &mut Rows, xs: &mut Rows) {
        let (isa, pool) = (machine.core.isa, machine.core.pool);
        match &self.norm {
            Some(norm) if !self.adds_to_normed => {
                let mut normed = Rows::default();
                norm.forward_to(isa, pool, xs, &mut normed);
                self.dense.add(machine, Some(&normed), inner, xs);
            }
            Some(norm) => {
                norm.forward(isa, pool, xs);
                self.dense.add(machine, None, inner, xs);
            }
            None => self.dense.add(machine, None, inner, xs),
        }
    }
}

/// Experts, of which each token is read by one (Fedus et al. 2022).
#[derive(Debug)]
pub(super) struct Switch {
    pub(super) sizes: SwitchSizes,
    /// Scores experts.
    pub(super) router: Linear,
    pub(super) experts: Vec<Dense>,
}

impl FeedPart {
    /// Adds the part of `normed`, or of `xs` where there is none, to `xs`, whose sequences are `blocks` of rows.
    pub(super) fn add(
        &self,
        machine: &mut Machine,
        normed: Option<&Rows>,
        inner: &mut Rows,
        (xs, blocks): (&mut Rows, &[Range<usize>]),
    ) {
        match self {
            Self::Dense(dense) => dense.add(machine, normed, inner, xs),
            Self::Adapted(dense, adapter) => {
                dense.add(machine, normed, inner, xs);
                adapter.add(machine, inner, xs);
            }
            Self::Switch(experts) => {
                let mut result = Rows::new(xs.count(), xs.width());
                experts.add(machine, normed.unwrap_or(xs), inner, (&mut result, blocks));
                for row in 0..xs.count() {
                    let values = xs.row_mut(row).iter_mut().zip(result.row(row));
                    values.for_each(|(value, added)| *value += added);
                }
            }
        }
    }
}

impl Switch {
    /// Adds what the experts make of the rows of `input` to those of `out`.
    fn add(
        &self,
        machine: &mut Machine,
        input: &Rows,
        inner: &mut Rows,
        (out, blocks): (&mut Rows, &[Range<usize>]),
    ) {
        let scores = self.router.values(machine, input);
        // For each expert, its tokens and their weights.
        let mut tokens: Vec<Vec<(usize, f32)>> = vec![Vec::new(); self.sizes.count];
        for rows in blocks {
            let scores = &scores[rows.start * self.sizes.count..rows.end * self.sizes.count];
            for (row, routed) in rows.clone().zip(self.sizes.route(scores)) {
                if let Some((expert, weight)) = routed {
                    tokens[expert].push((row, weight));
                }
            }
        }
        for (expert, tokens) in self.experts.iter().zip(tokens).filter(|(_, tokens)| !tokens.is_empty()) {
            let places: Vec<usize> = tokens.iter().map(|(row, _)| *row).collect();
            let picked = input.pick(&places, input.width());
            let mut result = Rows::new(picked.count(), out.width());
            expert.add(machine, Some(&picked), inner, &mut result);
            for (at, (row, weight)) in tokens.iter().enumerate() {
                let values = out.row_mut(*row).iter_mut().zip(result.row(at));
                values.for_each(|(value, added)| *value += weight * added);
            }
        }
    }
}

/// Rows whose inner states are in memory at a time.
const INNER_ROWS: usize = 512;

impl Dense {
    /// Adds the layer of `normed`, or of `xs` where there is none, to `xs`.
    pub(super) fn add(&self, machine: &mut Machine, normed: Option<&Rows>, inner: &mut Rows, xs: &mut Rows) {
        for start in (0..xs.count()).step_by(INNER_ROWS) {
            let rows = start..(start + INNER_ROWS).min(xs.count());
            let input = normed.unwrap_or(xs);
            inner.reshape(rows.len(), self.inner.matrix.outputs());
            let activation = self.function.of_product();
            self.inner.write(machine, input, rows.clone(), activation, Store::Set, inner, 0);
            match (&self.gated, activation) {
                (Some(gated), None) => {
                    let mut others = Rows::new(rows.len(), gated.matrix.outputs());
                    gated.write(machine, input, rows.clone(), None, Store::Set, &mut others, 0);
                    self.function.finish(&machine.core, inner, Some(&others));
                }
                (Some(gated), Some(_)) => {
                    gated.write(machine, input, rows.clone(), None, Store::Multiply, inner, 0);
                }
                (None, _) => self.function.finish(&machine.core, inner, None),
            }
            self.outer.write(machine, inner, 0..rows.len(), None, Store::Add, xs, start);
        }
    }
}
