//! Attention of an encoder to a window around each token (Beltagy et al. 2020), and to summaries of blocks of tokens (Guo et al.
//! 2022, "transient global attention").

use std::ops::Range;

use sporran_kernels::{Distances, Norm, PackedHead, Queries, Rows, View, attend};

use super::{
    causal::HIDDEN,
    disentangled::HeadColumns,
    layers::{Linear, Machine},
};
use crate::architectures::t5::bucket;

/// The least queries that share their keys.
const TOGETHER: usize = 64;

/// What the layers of an encoder attend to.
#[derive(Debug)]
pub(super) struct Windows {
    /// For each layer, the tokens on either side.
    pub(super) sides: Vec<usize>,
    pub(super) summaries: Option<Summaries>,
    /// The inputs of the attention of the first token, which attends to all, and all to it; empty where it does not.
    pub(super) first: Vec<Linear>,
}

/// Sums of the states of blocks of tokens, which every token attends to. Tokens after the last whole block are in that block.
#[derive(Debug)]
pub(super) struct Summaries {
    /// The tokens of a block.
    pub(super) size: usize,
    /// The norm of the sums, for each layer.
    pub(super) norms: Vec<Norm>,
    /// The biases of scores by the distance between blocks: for each bucket, one for each head.
    pub(super) weights: Vec<f32>,
    pub(super) buckets: usize,
    pub(super) max_distance: usize,
}

impl Summaries {
    /// The number of blocks of a sequence.
    fn count(&self, length: usize) -> usize {
        length / self.size
    }

    /// The block of a token.
    fn block(&self, position: usize, length: usize) -> usize {
        (position / self.size).min(self.count(length).saturating_sub(1))
    }
}

/// Queries that share the keys near them.
struct Chunk {
    /// Their rows among those that ask.
    asking: Range<usize>,
    /// Their positions in the sequence.
    offsets: Vec<usize>,
    /// The rows of their sequence.
    rows: Range<usize>,
    /// The rows of its summaries.
    summaries: Range<usize>,
}

/// What a layer reads.
pub(super) struct Reading<'a> {
    /// The layer's number.
    pub(super) layer: usize,
    /// The queries, keys and values of all tokens.
    pub(super) inputs: &'a Rows,
    /// The queries of those that ask.
    pub(super) asked: &'a Rows,
    /// The rows of the tokens that ask; none where all do.
    pub(super) wanted: Option<&'a [usize]>,
    /// The rows of each sequence.
    pub(super) blocks: &'a [Range<usize>],
    /// For each head, the biases of scores by distance, from that of the last query to the first key on.
    pub(super) distances: Option<&'a [Vec<f32>]>,
    /// The heads, the width of each and the factor of products.
    pub(super) shape: (usize, usize, f32),
}

impl Windows {
    /// Whether layers attend to less than all tokens of sequences of this length, or to more than the tokens.
    pub(super) fn applies(&self, longest: usize) -> bool {
        self.summaries.is_some() || !self.first.is_empty() || self.sides.iter().any(|side| side + 1 < longest)
    }

    /// The inputs of attention that are made of the summaries of all sequences, which are those of the states `normed`.
    pub(super) fn summarise(
        &self,
        machine: &mut Machine,
        (layer, inputs): (usize, &Linear),
        normed: &Rows,
        blocks: &[Range<usize>],
    ) -> Rows {
        let mut out = Rows::default();
        let Some(summaries) = &self.summaries else { return out };
        let count = blocks.iter().map(|rows| summaries.count(rows.len())).sum();
        let mut sums = Rows::new(count, normed.width());
        let mut first = 0;
        for rows in blocks.iter().filter(|rows| summaries.count(rows.len()) > 0) {
            for row in rows.clone() {
                let block = first + summaries.block(row - rows.start, rows.len());
                sums.row_mut(block).iter_mut().zip(normed.row(row)).for_each(|(sum, value)| *sum += value);
            }
            first += summaries.count(rows.len());
        }
        if count > 0 {
            summaries.norms[layer].forward(machine.core.isa, machine.core.pool, &mut sums);
            inputs.forward(machine, &sums, &mut out);
        }
        out
    }

    /// The chunks of the queries of all sequences.
    fn chunks(&self, reading: &Reading<'_>) -> Vec<Chunk> {
        let size = TOGETHER.max(self.sides[reading.layer]);
        let (mut chunks, mut asked, mut summarised) = (Vec::new(), 0, 0);
        for rows in reading.blocks {
            let offsets: Vec<usize> = match reading.wanted {
                Some(wanted) => {
                    let own = wanted.iter().filter(|row| rows.contains(row));
                    own.map(|row| row - rows.start).collect()
                }
                None => (0..rows.len()).collect(),
            };
            let count = self.summaries.as_ref().map_or(0, |summaries| summaries.count(rows.len()));
            for offsets in offsets.chunks(size) {
                chunks.push(Chunk {
                    asking: asked..asked + offsets.len(),
                    offsets: offsets.to_vec(),
                    rows: rows.clone(),
                    summaries: summarised..summarised + count,
                });
                asked += offsets.len();
            }
            summarised += count;
        }
        chunks
    }

    /// Writes what the heads of a layer mix into the rows of `mixed`, one for each that asks. `summarised` has the inputs that
    /// are made of summaries.
    pub(super) fn attend(
        &self,
        machine: &Machine,
        reading: &Reading<'_>,
        summarised: &Rows,
        mixed: &mut Rows,
    ) {
        let chunks = self.chunks(reading);
        let asking: Vec<Range<usize>> = chunks.iter().map(|chunk| chunk.asking.clone()).collect();
        let ((heads, width, scale), isa) = (reading.shape, machine.core.isa);
        let side = self.sides[reading.layer];
        mixed.each_part(machine.core.pool, &asking, width, &|chunk, head, mut part| {
            let chunk = &chunks[chunk];
            let (Some(first), Some(last)) = (chunk.offsets.first(), chunk.offsets.last()) else { return };
            let near = first.saturating_sub(side)..(last + side + 1).min(chunk.rows.len());
            let columns = HeadColumns { head, heads, width };
            let seen: Vec<usize> = match near.start > 0 && !self.first.is_empty() {
                true => std::iter::once(0).chain(near).collect(),
                false => near.collect(),
            };
            let count = seen.len() + chunk.summaries.len();
            let mut kept = Vec::with_capacity(count * 2 * width);
            let tokens = seen.iter().map(|offset| reading.inputs.row(chunk.rows.start + offset));
            let summaries = chunk.summaries.clone().map(|row| summarised.row(row));
            for row in tokens.chain(summaries) {
                kept.extend_from_slice(&row[columns.start(1)..][..width]);
                kept.extend_from_slice(&row[columns.start(2)..][..width]);
            }
            let mut packed = vec![0.0; PackedHead::size(count, width)];
            let keys = View::rows(0, count, width, 2 * width);
            PackedHead::pack(isa, &kept, keys, View { offset: width, ..keys }, &mut packed);
            let mut biases = Vec::with_capacity(chunk.offsets.len() * count);
            for offset in &chunk.offsets {
                biases.extend(seen.iter().map(|key| self.bias(reading, head, (*offset, *key))));
                biases.extend(
                    (0..chunk.summaries.len())
                        .map(|block| self.summary_bias((head, heads), (*offset, chunk.rows.len()), block)),
                );
            }
            let queries = Queries {
                values: &reading.asked.values()
                    [chunk.asking.start * reading.asked.stride() + columns.start(0)..],
                count: chunk.offsets.len(),
                stride: reading.asked.stride(),
            };
            let distances = Distances { values: &biases, start: 0, step: count as isize };
            let packed = PackedHead::new(&packed, count, width);
            attend(isa, packed, queries, scale.into(), Some(distances), &mut |query, values| {
                part.row_mut(query).copy_from_slice(values);
            });
        });
    }

    /// The inputs of the attention of the first tokens, which are those of the states `normed`.
    pub(super) fn first_inputs(&self, machine: &mut Machine, layer: usize, normed: &Rows) -> Rows {
        let mut out = Rows::default();
        if let Some(inputs) = self.first.get(layer) {
            inputs.forward(machine, normed, &mut out);
        }
        out
    }

    /// Writes what the heads of a layer mix for the first token of each sequence, by `inputs` of all tokens.
    pub(super) fn attend_first(
        &self,
        machine: &Machine,
        reading: &Reading<'_>,
        inputs: &Rows,
        mixed: &mut Rows,
    ) {
        if self.first.is_empty() {
            return;
        }
        let place = |rows: &Range<usize>| match reading.wanted {
            Some(wanted) => wanted.binary_search(&rows.start).ok(),
            None => Some(rows.start),
        };
        let (places, rows): (Vec<Range<usize>>, Vec<Range<usize>>) = reading
            .blocks
            .iter()
            .filter_map(|rows| place(rows).map(|row| (row..row + 1, rows.clone())))
            .unzip();
        let ((heads, width, scale), isa) = (reading.shape, machine.core.isa);
        mixed.each_part(machine.core.pool, &places, width, &|sequence, head, mut part| {
            let rows = rows[sequence].clone();
            let columns = HeadColumns { head, heads, width };
            let of = |which: usize| inputs.view(rows.clone(), columns.start(which), width);
            let mut packed = vec![0.0; PackedHead::size(rows.len(), width)];
            PackedHead::pack(isa, inputs.values(), of(1), of(2), &mut packed);
            let queries = Queries {
                values: &inputs.values()[rows.start * inputs.stride() + columns.start(0)..],
                count: 1,
                stride: inputs.stride(),
            };
            let packed = PackedHead::new(&packed, rows.len(), width);
            attend(isa, packed, queries, scale.into(), None, &mut |_, values| {
                part.row_mut(0).copy_from_slice(values);
            });
        });
    }

    /// The bias on the score that a query gives a key of its sequence.
    fn bias(&self, reading: &Reading<'_>, head: usize, (query, key): (usize, usize)) -> f32 {
        let is_first = key == 0 && !self.first.is_empty();
        if query.abs_diff(key) > self.sides[reading.layer] && !is_first {
            return HIDDEN;
        }
        reading.distances.map_or(0.0, |heads| {
            let values = &heads[head];
            values[values.len() / 2 + key - query]
        })
    }

    /// The bias on the score that a query of a sequence gives a summary.
    fn summary_bias(
        &self,
        (head, heads): (usize, usize),
        (query, length): (usize, usize),
        block: usize,
    ) -> f32 {
        let Some(summaries) = &self.summaries else { return 0.0 };
        let distance = block as i64 - summaries.block(query, length) as i64;
        let bucket = bucket(distance, true, summaries.buckets, summaries.max_distance) as usize;
        summaries.weights[bucket * heads + head]
    }
}
