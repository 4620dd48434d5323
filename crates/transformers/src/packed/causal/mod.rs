//! The packed decoder-only model of LLaMA's shape: rotary positions, root mean square norms, gated feed-forward parts,
//! and heads that share keys and values, with the variants of its kinds.

mod alternating;
mod attention;
mod layer_inputs;
mod lm;
mod parts;

pub(super) use alternating::{Alternating, Streams};
pub(super) use layer_inputs::{LayerInput, LayerTable};

use candle_core::Device;
use sporran_checkpoint::{Error, Result, SpecialTokens};
use sporran_kernels::{Norm, Rows, Scores, Table};

use super::{
    beside::Beside,
    kv_cache::{Heads, KvCache, Prompt},
    latent::Latent,
    layers::{Buffers, Linear, Machine, Machines},
    mixture::Part,
    ragged::Token,
    recurrence::Recurrence,
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

/// One layer: self-attention or a recurrence, and the feed-forward part.
#[derive(Debug)]
pub(super) struct CausalLayer {
    pub(super) mixer: Mixer,
    /// The output projection of the mixer.
    pub(super) output: Linear,
    /// A recurrence beside attention, which reads the same states, and its output projection.
    pub(super) beside: Option<(Recurrence, Linear)>,
    /// The norm of the mixer.
    pub(super) norm: Norm,
    pub(super) part: Part,
    /// The norm of the feed-forward part.
    pub(super) part_norm: Norm,
    /// The norms of the results of the mixer and of the feed-forward part, besides those of their inputs.
    pub(super) result_norms: [Option<Norm>; 2],
    /// The experts beside the feed-forward part.
    pub(super) experts_beside: Option<Box<Beside>>,
    /// What the embeddings of the layer add to the states.
    pub(super) input: Option<LayerInput>,
    /// What it does with streams of states.
    pub(super) alternating: Option<Alternating>,
    /// The factor of the states afterwards.
    pub(super) scale_after: Option<f32>,
}

/// The part of a layer that reads other tokens.
#[derive(Debug)]
pub(super) enum Mixer {
    Attention(Box<Attention>),
    Recurrence(Recurrence),
}

/// Self-attention without its output projection.
#[derive(Debug)]
pub(super) struct Attention {
    pub(super) heads: Heads,
    /// The earlier layer whose keys and values it attends to; none where it has its own.
    pub(super) source: Option<usize>,
    pub(super) inputs: Inputs,
    /// The gates of results.
    pub(super) gate: Option<Linear>,
    /// The factor of results.
    pub(super) result: f32,
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
}

impl CausalLayer {
    /// The tokens that it attends to, where it has a window.
    fn window(&self) -> Option<usize> {
        match &self.mixer {
            Mixer::Attention(attention) => attention.window,
            Mixer::Recurrence(_) => None,
        }
    }
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
        let of = |layer: &CausalLayer| match &layer.mixer {
            Mixer::Attention(attention) => attention.source == Some(at),
            Mixer::Recurrence(_) => false,
        };
        self.layers.iter().any(of)
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
        let mut prompts: Vec<Prompt> = lengths.iter().map(|length| Prompt::new(*length)).collect();
        let longest = lengths.iter().copied().max().unwrap_or(1);
        let all = self.order(longest, None);
        let near = self.layers.iter().find_map(CausalLayer::window);
        let near = near.map(|window| self.order(longest, Some(window)));
        let mut blocks = Vec::with_capacity(lengths.len());
        let mut end = 0;
        for length in lengths {
            blocks.push(end..end + length);
            end += length;
        }
        let mut buffers = std::mem::take(&mut machine.buffers);
        for (at, layer) in self.layers.iter().enumerate() {
            let Buffers { normed, inputs, mixed, inner } = &mut buffers;
            if let Some(see) = &mut see {
                see(&xs);
                if !self.is_source(at.wrapping_sub(1)) {
                    prompts.iter_mut().for_each(Prompt::forget_last);
                }
            }
            layer.begin(machine, &mut streams, &mut xs);
            let source = self.source(machine, layer, &xs, normed);
            let residual = layer.residual(machine, source);
            let (mut kept, mut states) = (Vec::new(), Vec::new());
            match &layer.mixer {
                Mixer::Attention(attention) => {
                    attention.inputs.forward(machine, source, inputs);
                    self.prepare(machine, attention, inputs, &turns);
                    kept = attention.kept(inputs, &blocks);
                    let seen: Vec<&[f32]> = match attention.source {
                        Some(source) => prompts.iter().map(|prompt| &prompt.layers[source][..]).collect(),
                        None => kept.iter().map(Vec::as_slice).collect(),
                    };
                    let order = near.as_ref().filter(|_| attention.window.is_some()).unwrap_or(&all);
                    self.attend_all(machine, attention, (&*inputs, &seen), (&blocks, order), mixed);
                    attention.scale(machine, source, mixed);
                }
                Mixer::Recurrence(recurrence) => {
                    states = recurrence.read(machine, source, &blocks, mixed);
                }
            }
            let mut second = Rows::default();
            if let Some((recurrence, _)) = &layer.beside {
                states = recurrence.read(machine, source, &blocks, &mut second);
            }
            let (mut kept, mut states) = (kept.into_iter(), states.into_iter());
            for prompt in &mut prompts {
                prompt.layers.push(kept.next().unwrap_or_default());
                prompt.states.push(states.next().unwrap_or_default());
            }
            if let Some((_, output)) = &layer.beside {
                output.add(machine, &second, &mut xs);
            }
            self.mixed(machine, layer, mixed, normed, &mut xs);
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
            let Buffers { normed, inputs, mixed, inner } = &mut buffers;
            layer.begin(machine, &mut streams, &mut xs);
            let source = self.source(machine, layer, &xs, normed);
            let residual = layer.residual(machine, source);
            match &layer.mixer {
                Mixer::Attention(attention) => {
                    attention.inputs.forward(machine, source, inputs);
                    self.prepare(machine, attention, inputs, &turns);
                    let mut block = Rows::new(source.count(), 0);
                    if attention.source.is_none() {
                        block = Rows::new(source.count(), attention.heads.kept());
                        for row in 0..source.count() {
                            attention.heads.keep(inputs.row(row), block.row_mut(row));
                        }
                    }
                    // Every layer has its rows.
                    kept.steps.extend(at, block);
                    self.attend_last(machine, attention, (at, &*inputs), (kept, &rows), mixed);
                    attention.scale(machine, source, mixed);
                }
                Mixer::Recurrence(recurrence) => {
                    kept.steps.extend(at, Rows::new(source.count(), 0));
                    recurrence.forward(machine, source, &rows, &mut kept.states_mut(at), mixed);
                }
            }
            let mut second = Rows::default();
            if let Some((recurrence, _)) = &layer.beside {
                recurrence.forward(machine, source, &rows, &mut kept.states_mut(at), &mut second);
            }
            if let Some((_, output)) = &layer.beside {
                output.add(machine, &second, &mut xs);
            }
            self.mixed(machine, layer, mixed, normed, &mut xs);
            layer.add_residual(machine, residual, &mut xs);
            self.feed_forward(machine, layer, [normed, mixed], inner, &mut xs);
            self.end_layer(machine, (at, layer), (layer_inputs.as_ref(), &mut streams), &mut xs);
        }
        machine.buffers = buffers;
        let xs = self.end_streams(machine, streams, xs);
        Ok(self.last_states(machine, xs))
    }
}
