//! Streams of states of which layers read one (Baykal et al. 2023, "alternating updates"), and learned parts of residuals (Menghani
//! et al. 2025, "LAuReL").

use sporran_kernels::{Activation, Norm, Rows};

use super::{
    super::layers::{Linear, Machine},
    CausalLayer, PackedLlama,
};
use crate::architectures::llama::StreamSizes;

/// The projections between embeddings and streams.
#[derive(Debug)]
pub(in super::super) struct Streams {
    /// From the embeddings to each stream but the first, and from each of these to what the head reads.
    pub(in super::super) projections: [Vec<Linear>; 2],
}

/// What a layer does with streams.
#[derive(Debug)]
pub(in super::super) struct Alternating {
    pub(in super::super) sizes: StreamSizes,
    pub(in super::super) router_norm: Norm,
    pub(in super::super) router: Linear,
    pub(in super::super) before: Linear,
    pub(in super::super) after: Linear,
    /// The scale of the states that embeddings of the layer are multiplied with; empty where there is none.
    pub(in super::super) scale: Vec<f32>,
    pub(in super::super) residual: [Linear; 2],
    pub(in super::super) residual_norm: Norm,
}

/// The mean square of a row.
fn power(row: &[f32]) -> f32 {
    row.iter().map(|value| value * value).sum::<f32>() / row.len() as f32
}

/// Calls `work` with each row of `xs`.
fn each_row(machine: &Machine, xs: &mut Rows, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
    let (blocks, width): (Vec<_>, _) = ((0..xs.count()).map(|row| row..row + 1).collect(), xs.width());
    xs.each_part(machine.core.pool, &blocks, width, &|row, _, mut part| work(row, part.row_mut(0)));
}

/// The projection of `xs`, whose rows have the sizes of those of `like`.
fn resized(machine: &mut Machine, layer: &Linear, xs: &Rows, like: &Rows) -> Rows {
    let mut out = Rows::default();
    layer.forward(machine, xs, &mut out);
    each_row(machine, &mut out, &|row, values| {
        let factor = power(like.row(row)).sqrt() / power(values).max(1e-5).sqrt();
        values.iter_mut().for_each(|value| *value *= factor);
    });
    out
}

impl Alternating {
    /// What coefficients are made of, from the states `xs`: a number for each stream.
    fn routed(&self, machine: &mut Machine, xs: &Rows) -> Rows {
        let (mut normed, mut out) = (Rows::default(), Rows::default());
        self.router_norm.forward_to(machine.core.isa, machine.core.pool, xs, &mut normed);
        self.router.forward(machine, &normed, &mut out);
        for row in 0..out.count() {
            Activation::Tanh.forward(machine.core.isa, out.row_mut(row));
        }
        out
    }

    /// Makes streams those before the layer, and `xs` the one that it reads.
    fn begin(&self, machine: &mut Machine, streams: &mut [Rows], xs: &mut Rows) {
        let routed = self.routed(machine, &streams[self.sizes.active]);
        let mut coefficients = Rows::default();
        self.before.forward(machine, &routed, &mut coefficients);
        let count = streams.len();
        let mut all = streams.to_vec();
        for (to, stream) in all.iter_mut().enumerate() {
            each_row(machine, stream, &|row, values| {
                let coefficients = &coefficients.row(row)[to * count..][..count];
                for (other, factor) in streams.iter().zip(coefficients) {
                    let values = values.iter_mut().zip(other.row(row));
                    values.for_each(|(value, other)| *value += factor * other);
                }
            });
        }
        streams.clone_from_slice(&all);
        xs.clone_from(&streams[self.sizes.active]);
    }

    /// What the normalised states `xs` that a layer reads add to those after attention.
    fn residual(&self, machine: &mut Machine, xs: &Rows) -> Rows {
        let [left, right] = &self.residual;
        let (mut inner, mut out) = (Rows::default(), Rows::default());
        left.forward(machine, xs, &mut inner);
        right.forward(machine, &inner, &mut out);
        self.residual_norm.forward(machine.core.isa, machine.core.pool, &mut out);
        each_row(machine, &mut out, &|row, values| {
            values.iter_mut().zip(xs.row(row)).for_each(|(value, own)| *value += own);
        });
        out
    }

    /// Makes streams those after the layer, which gives the states `xs`. Returns the states that embeddings of the layer are
    /// multiplied with.
    fn end(&self, machine: &mut Machine, streams: &mut [Rows], xs: &Rows) -> Rows {
        let routed = self.routed(machine, xs);
        let mut coefficients = Rows::default();
        self.after.forward(machine, &routed, &mut coefficients);
        let before = streams[self.sizes.active].clone();
        for (at, stream) in streams.iter_mut().enumerate() {
            each_row(machine, stream, &|row, values| {
                let factor = coefficients.row(row)[at] + 1.0;
                let changes = xs.row(row).iter().zip(before.row(row));
                values.iter_mut().zip(changes).for_each(|(value, (new, old))| *value += factor * (new - old));
            });
        }
        let mut active = streams[self.sizes.active].clone();
        each_row(machine, &mut active, &|_, values| {
            values.iter_mut().zip(&self.scale).for_each(|(value, scale)| *value *= scale);
        });
        active
    }
}

impl PackedLlama {
    /// The streams of the embeddings `xs`; empty where there are none.
    pub(super) fn begin_streams(&self, machine: &mut Machine, xs: &Rows) -> Vec<Rows> {
        let Some(streams) = &self.streams else { return Vec::new() };
        let [inner, _] = &streams.projections;
        let mut all = vec![xs.clone()];
        all.extend(inner.iter().map(|layer| resized(machine, layer, xs, xs)));
        all
    }

    /// What the head reads of streams, or of the states `xs` where there are none.
    pub(super) fn end_streams(&self, machine: &mut Machine, streams: Vec<Rows>, xs: Rows) -> Rows {
        let (Some(layers), Some((first, others))) = (&self.streams, streams.split_first()) else { return xs };
        let [_, outer] = &layers.projections;
        let others: Vec<Rows> =
            outer.iter().zip(others).map(|(layer, xs)| resized(machine, layer, xs, first)).collect();
        let (mut sum, share) = (first.clone(), 1.0 / streams.len() as f32);
        each_row(machine, &mut sum, &|row, values| {
            for other in &others {
                values.iter_mut().zip(other.row(row)).for_each(|(value, other)| *value += other);
            }
            values.iter_mut().for_each(|value| *value *= share);
        });
        sum
    }
}

impl CausalLayer {
    /// Makes `xs` the states that the layer reads, where there are streams.
    pub(super) fn begin(&self, machine: &mut Machine, streams: &mut [Rows], xs: &mut Rows) {
        if let Some(own) = &self.alternating {
            own.begin(machine, streams, xs);
        }
    }

    /// What the normalised states that the layer reads add to those after attention; none where they add nothing.
    pub(super) fn residual(&self, machine: &mut Machine, normed: &Rows) -> Option<Rows> {
        self.alternating.as_ref().map(|own| own.residual(machine, normed))
    }

    /// Makes `xs` the mean of itself and `residual` by their squares.
    pub(super) fn add_residual(&self, machine: &Machine, residual: Option<Rows>, xs: &mut Rows) {
        let Some(residual) = residual else { return };
        each_row(machine, xs, &|row, values| {
            let values = values.iter_mut().zip(residual.row(row));
            values.for_each(|(value, own)| *value = (*value + own) * 0.5f32.sqrt());
        });
    }

    /// Ends the layer with its states `xs` and its part of the embeddings `inputs` of all layers, where there are streams.
    pub(super) fn end_streams(
        &self,
        machine: &mut Machine,
        (at, inputs): (usize, Option<&Rows>),
        streams: &mut [Rows],
        xs: &Rows,
    ) {
        let (Some(own), Some(input), Some(inputs)) = (&self.alternating, &self.input, inputs) else { return };
        let active = own.end(machine, streams, xs);
        let added = input.forward(machine, at, inputs, &active);
        for stream in streams.iter_mut().skip(1) {
            each_row(machine, stream, &|row, values| {
                values.iter_mut().zip(added.row(row)).for_each(|(value, added)| *value += added);
            });
        }
    }
}
