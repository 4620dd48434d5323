//! The packed body of ModernBERT.

use std::ops::Range;

use candle_core::{Device, Tensor};
use sporran_checkpoint::{Error, Result};
use sporran_kernels::{Distances, Isa, Lines, Norm, PackedHead, Queries, Rows, Table, attend};

use super::{
    causal::HIDDEN,
    disentangled::HeadColumns,
    layers::{Buffers, FeedForward, Linear, Machine, Machines},
    ragged::{Ragged, Token},
    rotary::Rotations,
};
use crate::{architectures::modernbert::ModernBertConfig, batch::Batch, encoder::Encoder, seq2seq::too_long};

/// Queries of local attention that share a copy of their keys.
const QUERIES: usize = 128;

/// One layer: self-attention and the feed-forward part, each over normalised states.
#[derive(Debug)]
pub(super) struct ModernBertLayer {
    /// None in the first layer, whose input is normalised already.
    pub(super) norm: Option<Norm>,
    /// Queries, keys and values side by side.
    pub(super) inputs: Linear,
    pub(super) output: Linear,
    pub(super) feed_forward: FeedForward,
    pub(super) is_local: bool,
}

/// The body of ModernBERT for inference on a CPU. Its oracle is [`ModernBert`](crate::ModernBert).
#[derive(Debug)]
pub struct PackedModernBert {
    /// (vocabulary, width)
    pub(super) words: Table,
    pub(super) embedding_norm: Norm,
    pub(super) layers: Vec<ModernBertLayer>,
    pub(super) final_norm: Norm,
    pub(super) config: ModernBertConfig,
    pub(super) device: Device,
    pub(super) machines: Machines,
}

/// The queries of one input that a layer computes, and its keys.
struct Sequence<'a> {
    /// Queries, keys and values of all tokens, and where those of this input are.
    inputs: &'a Rows,
    rows: Range<usize>,
    /// The rows whose queries are asked, and where those of this input are.
    asked: &'a Rows,
    range: Range<usize>,
    /// The positions of the asked queries in the input; `None` where all of them are asked.
    offsets: Option<Vec<usize>>,
}

impl Sequence<'_> {
    /// Attends with the queries `from` this one on, to the keys in `keys`, both counted in the input.
    fn attend(
        &self,
        isa: Isa,
        columns: HeadColumns,
        (from, count): (usize, usize),
        keys: Range<usize>,
        distances: Option<Distances<'_>>,
        store: &mut dyn FnMut(usize, &[f32]),
    ) {
        let width = columns.width;
        let mut packed = Lines::zeroed(PackedHead::size(keys.len(), width));
        let rows = self.rows.start + keys.start..self.rows.start + keys.end;
        let of = |which: usize| self.inputs.view(rows.clone(), columns.start(which), width);
        PackedHead::pack(isa, self.inputs.values(), of(1), of(2), &mut packed);
        let queries = Queries {
            values: &self.asked.values()
                [(self.range.start + from) * self.asked.stride() + columns.start(0)..],
            count,
            stride: self.asked.stride(),
        };
        let head = PackedHead::new(&packed, keys.len(), width);
        let scale = (width as f32).powf(-0.5);
        attend(isa, head, queries, scale.into(), distances, &mut |query, values| store(from + query, values));
    }

    /// Attends to keys at most `window` away. `hidden` is that of [`hidden_beyond`].
    fn attend_near(
        &self,
        isa: Isa,
        columns: HeadColumns,
        window: usize,
        hidden: &[f32],
        store: &mut dyn FnMut(usize, &[f32]),
    ) {
        let each = if self.offsets.is_some() { 1 } else { QUERIES };
        for from in (0..self.range.len()).step_by(each) {
            let count = each.min(self.range.len() - from);
            let first = self.offsets.as_ref().map_or(from, |offsets| offsets[from]);
            let keys = first.saturating_sub(window)..(first + count + window).min(self.rows.len());
            let start = hidden.len() / 2 - (first - keys.start);
            let distances = Distances { values: hidden, start, step: -1 };
            self.attend(isa, columns, (from, count), keys, Some(distances), store);
        }
    }
}

/// The biases of the distances between a query and the keys that its block of queries shares: hidden beyond `window`.
fn hidden_beyond(window: usize) -> Vec<f32> {
    let most = (QUERIES - 1 + window) as i64;
    (-most..=most)
        .map(|distance| if distance.unsigned_abs() as usize > window { HIDDEN } else { 0.0 })
        .collect()
}

impl PackedModernBert {
    fn embeddings(&self, machine: &Machine, tokens: &[Token]) -> Result<Rows> {
        let (width, vocabulary) = (self.config.hidden_size, self.config.vocab_size);
        if let Some(token) = tokens.iter().find(|token| token.id as usize >= vocabulary) {
            let (expected, found) = (format!("token ids below {vocabulary}"), token.id.to_string());
            return Err(Error::Batch { expected, found });
        }
        let mut xs = Rows::new(tokens.len(), width);
        for (row, token) in tokens.iter().enumerate() {
            self.words.row(token.id as usize, xs.row_mut(row));
        }
        self.embedding_norm.forward(machine.core.isa, machine.core.pool, &mut xs);
        Ok(xs)
    }

    /// The tokens of a batch.
    fn ragged(&self, input: &Batch) -> Result<Ragged> {
        let most = self.config.max_position_embeddings;
        if input.length() > most {
            return Err(too_long("input", most, input.length()));
        }
        Ragged::new(input)
    }

    /// The last states of all tokens, or of the `wanted` ones, whose rows must rise; `see` is shown the embeddings and the
    /// states after each layer.
    fn run(
        &self,
        machine: &mut Machine,
        ragged: &Ragged,
        wanted: Option<&[usize]>,
        see: &mut dyn FnMut(&Rows),
    ) -> Result<Rows> {
        let (isa, pool) = (machine.core.isa, machine.core.pool);
        let config = &self.config;
        let mut xs = self.embeddings(machine, &ragged.tokens)?;
        let positions: Vec<usize> = ragged.lengths.iter().flat_map(|length| 0..*length).collect();
        let longest = ragged.lengths.iter().copied().max().unwrap_or(1);
        let rotations =
            [false, true].map(|is_local| Rotations::new(&config.rotation_steps(is_local), 0..longest, false));
        // A window is as long as an input at most.
        let window = config.window.min(longest);
        let hidden = hidden_beyond(window);
        let mut blocks = Vec::with_capacity(ragged.lengths.len());
        let mut end = 0;
        for length in &ragged.lengths {
            blocks.push(end..end + length);
            end += length;
        }
        let mut asking = blocks.clone();
        let (heads, width) = (config.num_attention_heads, config.hidden_size / config.num_attention_heads);
        let mut buffers = std::mem::take(&mut machine.buffers);
        for (at, layer) in self.layers.iter().enumerate() {
            see(&xs);
            let Buffers { normed, inputs, mixed, inner } = &mut buffers;
            let source = match &layer.norm {
                Some(norm) => {
                    norm.forward_to(isa, pool, &xs, normed);
                    &*normed
                }
                None => &xs,
            };
            layer.inputs.forward(machine, source, inputs);
            rotations[usize::from(layer.is_local)].turn(machine, inputs, 2 * heads * width, &positions);
            let inputs = &*inputs;
            let mut picked = None;
            if let Some(wanted) = wanted.filter(|_| at + 1 == self.layers.len()) {
                xs = xs.pick(wanted, xs.width());
                picked = Some(inputs.pick(wanted, heads * width));
                let before = |row: usize| wanted.partition_point(|wanted| *wanted < row);
                asking = blocks.iter().map(|rows| before(rows.start)..before(rows.end)).collect();
            }
            mixed.reshape(xs.count(), heads * width);
            mixed.each_part(pool, &asking, width, &|block, head, mut part| {
                let (rows, range) = (blocks[block].clone(), asking[block].clone());
                if range.is_empty() {
                    return;
                }
                let offsets = wanted
                    .filter(|_| picked.is_some())
                    .map(|wanted| wanted[range.clone()].iter().map(|row| row - rows.start).collect());
                let asked = picked.as_ref().unwrap_or(inputs);
                let (count, keys) = (range.len(), 0..rows.len());
                let sequence = Sequence { inputs, rows, asked, range, offsets };
                let columns = HeadColumns { head, heads, width };
                let mut store = |query: usize, values: &[f32]| part.row_mut(query).copy_from_slice(values);
                // Without a longer input than the window, local attention is global.
                if layer.is_local && keys.len() > window + 1 {
                    sequence.attend_near(isa, columns, window, &hidden, &mut store);
                } else {
                    sequence.attend(isa, columns, (0, count), keys, None, &mut store);
                }
            });
            layer.output.add(machine, mixed, &mut xs);
            layer.feed_forward.norm.forward_to(isa, pool, &xs, normed);
            layer.feed_forward.dense.add(machine, Some(normed), inner, (&mut xs, &blocks));
        }
        self.final_norm.forward(isa, pool, &mut xs);
        see(&xs);
        machine.buffers = buffers;
        Ok(xs)
    }
}

impl Encoder for PackedModernBert {
    fn states(&self, input: &Batch) -> Result<Tensor> {
        let ragged = self.ragged(input)?;
        let xs = self.machines.with(|machine| self.run(machine, &ragged, None, &mut |_| {}))?;
        ragged.padded(&xs, &self.device)
    }

    fn states_at(&self, input: &Batch, tokens: &[(usize, usize)]) -> Result<Tensor> {
        let ragged = self.ragged(input)?;
        ragged.states_at(tokens, &self.device, |wanted| {
            self.machines.with(|machine| self.run(machine, &ragged, Some(wanted), &mut |_| {}))
        })
    }

    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>> {
        let mut layers = Vec::with_capacity(1 + self.layers.len());
        let ragged = self.ragged(input)?;
        self.machines.with(|machine| self.run(machine, &ragged, None, &mut |xs| layers.push(xs.clone())))?;
        layers.iter().map(|xs| ragged.padded(xs, &self.device)).collect()
    }

    fn width(&self) -> usize {
        self.config.hidden_size
    }

    fn max_input_length(&self) -> usize {
        self.config.max_position_embeddings
    }

    fn takes_types(&self) -> bool {
        false
    }

    fn pad_token(&self) -> u32 {
        self.config.pad_token_id
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
