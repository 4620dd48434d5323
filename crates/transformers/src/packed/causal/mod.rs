//! The packed decoder-only model of LLaMA's shape: rotary positions, root mean square norms, gated feed-forward parts,
//! and heads that share keys and values, with the variants of its kinds.

mod alternating;
mod layer_inputs;
mod lm;
mod parts;

pub(super) use alternating::{Alternating, Streams};
pub(super) use layer_inputs::{LayerInput, LayerTable};

use candle_core::Device;
use sporran_checkpoint::{Error, Result, SpecialTokens};
use sporran_kernels::{
    Distances, Norm, PackedHead, Queries, Rows, Scores, Table, View, attend, attend_steps,
};

use super::{
    beside::Beside,
    kv_cache::{Heads, KvCache, Prompt},
    latent::Latent,
    layers::{Buffers, Linear, Machine, Machines},
    mixture::Part,
    ragged::Token,
    sinks::{all_biases, last_biases, with_nothing},
};
use crate::{
    architectures::{
        alibi::Alibi,
        llama::{QueryGrowth, Rope},
    },
    causal::CausalLm,
    decode::GenerationOptions,
    seq2seq::too_long,
};

/// Added to the score of a key that a query does not see.
pub(super) const HIDDEN: f32 = -1e30;

/// One layer: self-attention and the feed-forward part.
#[derive(Debug)]
pub(super) struct CausalLayer {
    pub(super) heads: Heads,
    /// The earlier layer whose keys and values it attends to; none where it has its own.
    pub(super) source: Option<usize>,
    pub(super) inputs: Inputs,
    pub(super) output: Linear,
    /// The norm of attention.
    pub(super) norm: Norm,
    pub(super) part: Part,
    /// The norm of the feed-forward part.
    pub(super) part_norm: Norm,
    /// The norms of the results of attention and of the feed-forward part, besides those of their inputs.
    pub(super) result_norms: [Option<Norm>; 2],
    /// The norms of queries and of keys: one as wide as a head or as all heads, or one for each head; none where they are not
    /// normalised.
    pub(super) head_norms: [Vec<Norm>; 2],
    /// The norm of each head's values.
    pub(super) value_norm: Option<Norm>,
    /// The place of the layer's angles among the model's; none where it turns nothing.
    pub(super) rope: Option<usize>,
    /// The tokens that the layer attends to, the own one included; none for all before.
    pub(super) window: Option<usize>,
    /// The score of attending to nothing, for each head.
    pub(super) sinks: Option<Vec<f32>>,
    /// The experts beside the feed-forward part.
    pub(super) beside: Option<Box<Beside>>,
    /// What the embeddings of the layer add to the states.
    pub(super) input: Option<LayerInput>,
    /// What it does with streams of states.
    pub(super) alternating: Option<Alternating>,
    /// The factor of the states afterwards.
    pub(super) scale_after: Option<f32>,
}

/// The projections to queries, keys and values.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a layer has one")]
pub(super) enum Inputs {
    /// One has them side by side, or queries alone where the layer has the keys and values of an earlier one.
    Together(Linear),
    /// Keys and values are made of a narrow vector.
    Latent(Latent),
}

/// A model of LLaMA's shape for inference on a CPU. Its oracle is [`Llama`](crate::Llama).
#[derive(Debug)]
pub struct PackedLlama {
    /// The embedding table where the head does not share it: (vocabulary, width).
    pub(super) embeddings: Option<Table>,
    pub(super) embedding_scale: f32,
    /// The projections of embeddings to states, and of states to what the head reads.
    pub(super) projections: Option<[Linear; 2]>,
    /// The vectors of positions (positions, width).
    pub(super) positions: Option<Table>,
    pub(super) embedding_norm: Option<Norm>,
    /// The embeddings that each layer has of its own.
    pub(super) layer_table: Option<LayerTable>,
    /// The projections between embeddings and streams of states.
    pub(super) streams: Option<Streams>,
    /// The head that scores words; none in an encoder, which has a table of embeddings.
    pub(super) head: Option<Linear>,
    pub(super) logit_scale: f32,
    /// The bound of the logits.
    pub(super) logit_cap: Option<f32>,
    pub(super) layers: Vec<CausalLayer>,
    pub(super) norm: Option<Norm>,
    pub(super) width: usize,
    pub(super) ropes: Vec<Rope>,
    /// How queries grow with their positions.
    pub(super) query_growth: Option<QueryGrowth>,
    /// The biases of scores by positions.
    pub(super) alibi: Option<Alibi>,
    /// Whether tokens see those after them.
    pub(super) is_bidirectional: bool,
    /// The length after which a sequence is read again from its beginning, by other angles.
    pub(super) reads_again_after: Option<usize>,
    /// Whether the two of a pair that is turned together lie side by side.
    pub(super) turns_neighbours: bool,
    /// Whether queries and keys are turned before they are normalised.
    pub(super) turns_first: bool,
    /// The bound of the values of queries, keys and values.
    pub(super) clip: Option<f32>,
    pub(super) scores: Scores,
    /// Whether a part reads normalised states, or its result is normalised (OLMo 2).
    pub(super) norm_first: bool,
    /// Whether the norm of a part is that of the states that its result is added to (OPT 350M).
    pub(super) norms_sums: bool,
    /// Whether the feed-forward part reads the states before a layer, and not those after attention.
    pub(super) is_parallel: bool,
    /// The factor of what a part adds to the states.
    pub(super) residual_scale: f32,
    pub(super) max_length: usize,
    pub(super) tokens: SpecialTokens,
    pub(super) generation: GenerationOptions,
    pub(super) device: Device,
    pub(super) machines: Machines,
}

impl PackedLlama {
    /// The states that the first layer reads of tokens, whose positions in their sequences are `places`.
    fn embeddings(&self, machine: &mut Machine, tokens: &[u32], places: &[usize]) -> Result<Rows> {
        let vocabulary = self.vocab_size();
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            let (expected, found) = (format!("token ids below {vocabulary}"), token.to_string());
            return Err(Error::Batch { expected, found });
        }
        let most = self.positions.as_ref().map(|_| self.max_length);
        if let (Some(most), Some(last)) = (most, places.iter().max())
            && *last >= most
        {
            return Err(too_long("sequence", most, last + 1));
        }
        let blocks: Vec<_> = (0..tokens.len()).map(|row| row..row + 1).collect();
        let outer = self.output_width();
        let mut xs = Rows::new(tokens.len(), outer);
        xs.each_part(machine.core.pool, &blocks, outer, &|row, _, mut part| {
            let (token, out) = (tokens[row] as usize, part.row_mut(0));
            match (&self.embeddings, &self.head) {
                (Some(table), _) => table.row(token, out),
                (None, Some(head)) => head.matrix.output(token, out),
                (None, None) => {}
            }
            if self.embedding_scale != 1.0 {
                out.iter_mut().for_each(|value| *value *= self.embedding_scale);
            }
        });
        if let Some([inner, _]) = &self.projections {
            let words = std::mem::take(&mut xs);
            inner.forward(machine, &words, &mut xs);
        }
        if let Some(positions) = &self.positions {
            xs.each_part(machine.core.pool, &blocks, self.width, &|row, _, mut part| {
                let out = part.row_mut(0);
                let mut place = vec![0.0; out.len()];
                positions.row(places[row], &mut place);
                out.iter_mut().zip(place).for_each(|(value, place)| *value += place);
            });
        }
        if let Some(norm) = &self.embedding_norm {
            norm.forward(machine.core.isa, machine.core.pool, &mut xs);
        }
        Ok(xs)
    }

    /// The width of embeddings, and of states after the last layer.
    pub(super) fn output_width(&self) -> usize {
        self.projections.as_ref().map_or(self.width, |[_, outer]| outer.matrix.outputs())
    }

    /// What the head reads of the states after the last layer.
    fn last_states(&self, machine: &mut Machine, mut xs: Rows) -> Rows {
        if let Some(norm) = &self.norm {
            norm.forward(machine.core.isa, machine.core.pool, &mut xs);
        }
        let Some([_, outer]) = &self.projections else { return xs };
        let mut out = Rows::default();
        outer.forward(machine, &xs, &mut out);
        out
    }

    /// By the distance from query to key, from that of the last query to the first key on: what is added to scores.
    fn order(&self, longest: usize, window: Option<usize>) -> Vec<f32> {
        let last = longest - 1;
        // At `last` a key is its query's own.
        let is_seen = |at: usize| {
            (at <= last || self.is_bidirectional) && window.is_none_or(|window| last.abs_diff(at) < window)
        };
        (0..2 * longest - 1).map(|at| if is_seen(at) { 0.0 } else { HIDDEN }).collect()
    }

    /// Whether later layers attend to the keys and values of layer `at`.
    fn is_source(&self, at: usize) -> bool {
        self.layers.iter().any(|layer| layer.source == Some(at))
    }

    /// Runs the layers over whole prompts, which are contiguous and have `lengths`. Returns the hidden states after the last
    /// norm, and the cache of each prompt. With `see` nothing is kept: it is shown what each layer reads.
    pub(super) fn read(
        &self,
        machine: &mut Machine,
        tokens: &[Token],
        lengths: &[usize],
        mut see: Option<&mut dyn FnMut(&Rows)>,
    ) -> Result<(Rows, Vec<Prompt>)> {
        let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        let places = |length: &usize| (0..*length).map(|position| (position, *length)).collect::<Vec<_>>();
        let rows = lengths.iter().flat_map(places).collect::<Vec<_>>();
        let places: Vec<usize> = rows.iter().map(|(position, _)| *position).collect();
        let mut xs = self.embeddings(machine, &ids, &places)?;
        let layer_inputs = self.layer_inputs(machine, &ids, &xs)?;
        let mut streams = self.begin_streams(machine, &xs);
        let turns = self.turns(&rows);
        let mut prompts: Vec<Prompt> =
            lengths.iter().map(|length| Prompt { length: *length, layers: Vec::new() }).collect();
        let longest = lengths.iter().copied().max().unwrap_or(1);
        let all = self.order(longest, None);
        let near = self.layers.iter().find_map(|layer| layer.window);
        let near = near.map(|window| self.order(longest, Some(window)));
        let mut blocks = Vec::with_capacity(lengths.len());
        let mut end = 0;
        for length in lengths {
            blocks.push(end..end + length);
            end += length;
        }
        let mut buffers = std::mem::take(&mut machine.buffers);
        for (at, layer) in self.layers.iter().enumerate() {
            let shape = layer.heads;
            let each = shape.each();
            let Buffers { normed, inputs, mixed, inner } = &mut buffers;
            if let Some(see) = &mut see {
                see(&xs);
                if !self.is_source(at.wrapping_sub(1)) {
                    prompts
                        .iter_mut()
                        .filter_map(|prompt| prompt.layers.last_mut())
                        .for_each(|kept| *kept = Vec::new());
                }
            }
            layer.begin(machine, &mut streams, &mut xs);
            self.project(machine, layer, &xs, normed, inputs);
            let residual = layer.residual(machine, normed);
            self.prepare(machine, layer, inputs, &turns);
            for (prompt, block) in prompts.iter_mut().zip(&blocks) {
                if layer.source.is_some() {
                    prompt.layers.push(Vec::new());
                    continue;
                }
                let mut kept = vec![0.0; prompt.length * shape.kept()];
                for (row, out) in block.clone().zip(kept.chunks_exact_mut(shape.kept())) {
                    shape.keep(inputs.row(row), out);
                }
                prompt.layers.push(kept);
            }
            mixed.reshape(xs.count(), shape.heads * shape.width);
            let (isa, scores, inputs) = (machine.core.isa, self.scores, &*inputs);
            let order = near.as_ref().filter(|_| layer.window.is_some()).unwrap_or(&all);
            let prompts = &prompts;
            mixed.each_part(machine.core.pool, &blocks, each * shape.width, &|block, group, mut part| {
                let rows = blocks[block].clone();
                let kept = prompts[block].layers[layer.source.unwrap_or(at)].as_slice();
                let padded = layer.sinks.as_ref().map(|_| with_nothing(kept, rows.clone(), shape.kept()));
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
                    let sinks =
                        layer.sinks.as_ref().map(|sinks| all_biases(order, longest, rows.len(), sinks[own]));
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
            self.attended(machine, layer, mixed, normed, &mut xs);
            layer.add_residual(machine, residual, &mut xs);
            self.feed_forward(machine, layer, [normed, mixed], inner, &mut xs);
            self.end_layer(machine, (at, layer), (layer_inputs.as_ref(), &mut streams), &mut xs);
        }
        machine.buffers = buffers;
        let xs = self.end_streams(machine, streams, xs);
        Ok((self.last_states(machine, xs), prompts))
    }

    /// Continues every sequence by a token, and returns the states after the last norm.
    pub(super) fn step(&self, machine: &mut Machine, tokens: &[u32], kept: &mut KvCache) -> Result<Rows> {
        let places: Vec<usize> = kept.lengths().collect();
        let turns = self.turns(&places.iter().map(|length| (*length, length + 1)).collect::<Vec<_>>());
        let mut xs = self.embeddings(machine, tokens, &places)?;
        let layer_inputs = self.layer_inputs(machine, tokens, &xs)?;
        let mut streams = self.begin_streams(machine, &xs);
        kept.steps.push(xs.count());
        let rows: Vec<_> = (0..xs.count()).map(|row| row..row + 1).collect();
        let mut buffers = std::mem::take(&mut machine.buffers);
        for (at, layer) in self.layers.iter().enumerate() {
            let shape = layer.heads;
            let each = shape.each();
            let Buffers { normed, inputs, mixed, inner } = &mut buffers;
            layer.begin(machine, &mut streams, &mut xs);
            self.project(machine, layer, &xs, normed, inputs);
            let residual = layer.residual(machine, normed);
            self.prepare(machine, layer, inputs, &turns);
            if layer.source.is_none() {
                let mut block = Rows::new(xs.count(), shape.kept());
                for row in 0..xs.count() {
                    shape.keep(inputs.row(row), block.row_mut(row));
                }
                kept.steps.extend(at, block);
            }
            mixed.reshape(xs.count(), shape.heads * shape.width);
            let (isa, scores, inputs, kept) = (machine.core.isa, self.scores, &*inputs, &*kept);
            mixed.each_part(machine.core.pool, &rows, each * shape.width, &|row, group, mut part| {
                let seen = kept.seen(layer.source.unwrap_or(at), row, group, shape);
                let seen = &seen[seen.len() - layer.window.unwrap_or(seen.len()).min(seen.len())..];
                let nothing = layer.sinks.as_ref().map(|_| vec![0.0; 2 * shape.width]);
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
                    let biases = match (&self.alibi, &layer.sinks) {
                        (_, Some(sinks)) => Some([last_biases(tokens, sinks[own])]),
                        (Some(alibi), None) => Some([alibi.of_last(own, tokens)]),
                        (None, None) => None,
                    };
                    let biases = biases.as_ref().map(|biases| &biases[..]);
                    attend_steps(isa, queries, seen, 1, scores, biases, out);
                }
            });
            self.attended(machine, layer, mixed, normed, &mut xs);
            layer.add_residual(machine, residual, &mut xs);
            self.feed_forward(machine, layer, [normed, mixed], inner, &mut xs);
            self.end_layer(machine, (at, layer), (layer_inputs.as_ref(), &mut streams), &mut xs);
        }
        machine.buffers = buffers;
        let xs = self.end_streams(machine, streams, xs);
        Ok(self.last_states(machine, xs))
    }
}
