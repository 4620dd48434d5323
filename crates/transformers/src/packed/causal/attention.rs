//! The attention of a packed decoder.

use std::ops::Range;

use sporran_kernels::{Distances, PackedHead, Queries, Rows, View, attend, attend_steps};

use super::{
    super::{
        kv_cache::KvCache,
        layers::{Machine, multiply},
        sinks::{all_biases, last_biases, with_nothing},
    },
    Attention, HIDDEN, Inputs, PackedLlama,
};

impl Inputs {
    /// Queries, keys and values of the rows of `source`, side by side.
    pub(super) fn forward(&self, machine: &mut Machine, source: &Rows, out: &mut Rows) {
        match self {
            Self::Together(all) => all.forward(machine, source, out),
            Self::Latent(latent) => latent.forward(machine, source, out),
        }
    }
}

impl Attention {
    /// Multiplies results by the sigmoids of their gates, and by their factor.
    pub(super) fn scale(&self, machine: &mut Machine, source: &Rows, mixed: &mut Rows) {
        multiply(mixed, self.result);
        let Some(gate) = &self.gate else { return };
        let mut gates = Rows::default();
        gate.forward(machine, source, &mut gates);
        let rows: Vec<_> = (0..mixed.count()).map(|row| row..row + 1).collect();
        let width = mixed.width();
        mixed.each_part(machine.core.pool, &rows, width, &|row, _, mut part| {
            let values = part.row_mut(0).iter_mut().zip(gates.row(row));
            values.for_each(|(value, gate)| *value /= 1.0 + (-gate).exp());
        });
    }

    /// The keys and values of each of `blocks` of rows; none where they are those of an earlier layer.
    pub(super) fn kept(&self, inputs: &Rows, blocks: &[Range<usize>]) -> Vec<Vec<f32>> {
        if self.source.is_some() {
            return Vec::new();
        }
        let width = self.heads.kept();
        let of = |block: &Range<usize>| {
            let mut kept = vec![0.0; block.len() * width];
            for (row, out) in block.clone().zip(kept.chunks_exact_mut(width)) {
                self.heads.keep(inputs.row(row), out);
            }
            kept
        };
        blocks.iter().map(of).collect()
    }
}

impl PackedLlama {
    /// The results of whole prompts, which are `blocks` of the rows of `inputs`, with the `kept` keys and values of each. `order`
    /// has what is added to scores by distance.
    pub(super) fn attend_all(
        &self,
        machine: &Machine,
        attention: &Attention,
        (inputs, kept): (&Rows, &[&[f32]]),
        (blocks, order): (&[Range<usize>], &[f32]),
        mixed: &mut Rows,
    ) {
        let shape = attention.heads;
        let each = shape.each();
        let longest = order.len().div_ceil(2);
        mixed.reshape(inputs.count(), shape.heads * shape.width);
        let (isa, scores) = (machine.core.isa, self.scores);
        mixed.each_part(machine.core.pool, blocks, each * shape.width, &|block, group, mut part| {
            let rows = blocks[block].clone();
            let kept = kept[block];
            let padded = attention.sinks.as_ref().map(|_| with_nothing(kept, rows.clone(), shape.kept()));
            let (kept, count) = match &padded {
                Some(padded) => (padded.as_slice(), rows.len() + 1),
                None => (kept, rows.len()),
            };
            let mut packed = vec![0.0; PackedHead::size(count, shape.width)];
            let keys = View::rows(group * 2 * shape.width, count, shape.width, shape.kept());
            let values = View { offset: keys.offset + shape.width, ..keys };
            PackedHead::pack(isa, kept, keys, values, &mut packed);
            for head in 0..each {
                let own = group * each + head;
                let column = own * shape.width;
                let biases = self.alibi.as_ref().map(|alibi| alibi.biases(own, rows.len(), HIDDEN));
                let sinks = attention.sinks.as_ref();
                let sinks = sinks.map(|sinks| all_biases(order, longest, rows.len(), sinks[own]));
                let order = match (&biases, &sinks) {
                    (_, Some(values)) => Distances { values, start: 0, step: count as isize },
                    (Some(biases), None) => {
                        Distances { values: &biases.values, start: biases.start, step: biases.step }
                    }
                    (None, None) => Distances { values: order, start: longest - 1, step: -1 },
                };
                let queries = Queries {
                    values: &inputs.values()[rows.start * inputs.stride() + column..],
                    count: rows.len(),
                    stride: inputs.stride(),
                };
                let keys = PackedHead::new(&packed, count, shape.width);
                attend(isa, keys, queries, scores, Some(order), &mut |query, values| {
                    part.row_mut(query)[head * shape.width..][..shape.width].copy_from_slice(values);
                });
            }
        });
    }

    /// The results of the last token of each sequence of the cache, in layer `at`.
    pub(super) fn attend_last(
        &self,
        machine: &Machine,
        attention: &Attention,
        (at, inputs): (usize, &Rows),
        (kept, rows): (&KvCache, &[Range<usize>]),
        mixed: &mut Rows,
    ) {
        let shape = attention.heads;
        let each = shape.each();
        mixed.reshape(inputs.count(), shape.heads * shape.width);
        let (isa, scores) = (machine.core.isa, self.scores);
        mixed.each_part(machine.core.pool, rows, each * shape.width, &|row, group, mut part| {
            let seen = kept.seen(attention.source.unwrap_or(at), row, group, shape);
            let seen = &seen[seen.len() - attention.window.unwrap_or(seen.len()).min(seen.len())..];
            let nothing = attention.sinks.as_ref().map(|_| vec![0.0; 2 * shape.width]);
            let with_nothing: Vec<&[f32]>;
            let (tokens, seen) = match &nothing {
                Some(nothing) => {
                    with_nothing = [&nothing[..]].into_iter().chain(seen.iter().copied()).collect();
                    (seen.len(), &with_nothing[..])
                }
                None => (seen.len(), seen),
            };
            let queries = &inputs.row(row)[group * each * shape.width..][..each * shape.width];
            let out = part.row_mut(0);
            let heads = queries.chunks_exact(shape.width).zip(out.chunks_exact_mut(shape.width));
            for (head, (queries, out)) in heads.enumerate() {
                let own = group * each + head;
                let biases = match (&self.alibi, &attention.sinks) {
                    (_, Some(sinks)) => Some([last_biases(tokens, sinks[own])]),
                    (Some(alibi), None) => Some([alibi.of_last(own, tokens)]),
                    (None, None) => None,
                };
                let biases = biases.as_ref().map(|biases| &biases[..]);
                attend_steps(isa, queries, seen, 1, scores, biases, out);
            }
        });
    }
}
