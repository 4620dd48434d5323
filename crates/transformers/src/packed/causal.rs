//! The packed decoder-only model of LLaMA's shape: rotary positions, root mean square norms, gated feed-forward parts,
//! and heads that share keys and values.

use candle_core::{Device, Tensor};
use sporran_checkpoint::{Error, Result, SpecialTokens};
use sporran_kernels::{Distances, Norm, PackedHead, Queries, Rows, View, attend, attend_steps};

use super::{
    kv_cache::{Heads, KvCache, Prompt},
    layers::{Buffers, FeedForward, Linear, Machine, Machines, SelfAttention},
    ragged::{Ragged, Token},
    rotary::Rotations,
};
use crate::{
    batch::Batch,
    causal::{CausalCache, CausalLm},
    decode::GenerationOptions,
};

/// Added to the score of a key that a query does not see.
pub(super) const HIDDEN: f32 = -1e30;

/// One layer: self-attention and the feed-forward part, each over normalised states.
#[derive(Debug)]
pub(super) struct CausalLayer {
    pub(super) own: SelfAttention,
    pub(super) feed_forward: FeedForward,
}

/// A LLaMA or Qwen 2 model for inference on a CPU. Its oracle is [`Llama`](crate::Llama).
#[derive(Debug)]
pub struct PackedLlama {
    /// The embedding table where the head does not share it: (vocabulary, width).
    pub(super) embeddings: Option<Vec<f32>>,
    pub(super) head: Linear,
    pub(super) layers: Vec<CausalLayer>,
    pub(super) norm: Norm,
    pub(super) heads: Heads,
    pub(super) width: usize,
    /// The factors from a position to its angles, half as many as a head is wide.
    pub(super) steps: Vec<f32>,
    pub(super) max_length: usize,
    pub(super) tokens: SpecialTokens,
    pub(super) generation: GenerationOptions,
    pub(super) device: Device,
    pub(super) machines: Machines,
}

impl PackedLlama {
    fn embeddings(&self, machine: &Machine, tokens: &[u32]) -> Result<Rows> {
        let vocabulary = self.vocab_size();
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            let (expected, found) = (format!("token ids below {vocabulary}"), token.to_string());
            return Err(Error::Batch { expected, found });
        }
        let mut xs = Rows::new(tokens.len(), self.width);
        let blocks: Vec<_> = (0..tokens.len()).map(|row| row..row + 1).collect();
        xs.each_part(machine.core.pool, &blocks, self.width, &|row, _, mut part| {
            let (token, out) = (tokens[row] as usize, part.row_mut(0));
            match &self.embeddings {
                Some(table) => out.copy_from_slice(&table[token * self.width..][..self.width]),
                None => self.head.matrix.output(token, out),
            }
        });
        Ok(xs)
    }

    fn scale(&self) -> f32 {
        (self.heads.width as f32).powf(-0.5)
    }

    /// Runs the layers over whole prompts, which are contiguous and have `lengths`. Returns the hidden states after the last
    /// norm, and the cache of each prompt.
    fn read(
        &self,
        machine: &mut Machine,
        tokens: &[Token],
        lengths: &[usize],
    ) -> Result<(Rows, Vec<Prompt>)> {
        let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        let mut xs = self.embeddings(machine, &ids)?;
        let positions: Vec<usize> = lengths.iter().flat_map(|length| 0..*length).collect();
        let mut prompts: Vec<Prompt> =
            lengths.iter().map(|length| Prompt { length: *length, layers: Vec::new() }).collect();
        let longest = lengths.iter().copied().max().unwrap_or(1);
        let rotations = Rotations::new(&self.steps, 0..longest);
        // By the distance from query to key: later keys are masked.
        let mut order = vec![0f32; longest];
        order.resize(2 * longest - 1, HIDDEN);
        let mut blocks = Vec::with_capacity(lengths.len());
        let mut end = 0;
        for length in lengths {
            blocks.push(end..end + length);
            end += length;
        }
        let shape = self.heads;
        let each = shape.each();
        let mut buffers = std::mem::take(&mut machine.buffers);
        for layer in &self.layers {
            let Buffers { normed, inputs, mixed, inner } = &mut buffers;
            layer.own.norm.forward_to(machine.core.isa, machine.core.pool, &xs, normed);
            layer.own.inputs.forward(machine, normed, inputs);
            rotations.turn(machine, inputs, shape.turned(), &positions);
            for (prompt, block) in prompts.iter_mut().zip(&blocks) {
                let mut kept = vec![0.0; prompt.length * shape.kept()];
                for (row, out) in block.clone().zip(kept.chunks_exact_mut(shape.kept())) {
                    shape.keep(inputs.row(row), out);
                }
                prompt.layers.push(kept);
            }
            mixed.reshape(xs.count(), shape.heads * shape.width);
            let (isa, scale, inputs) = (machine.core.isa, self.scale(), &*inputs);
            let prompts = &prompts;
            mixed.each_part(machine.core.pool, &blocks, each * shape.width, &|block, group, mut part| {
                let rows = blocks[block].clone();
                let kept = prompts[block].layers.last().map_or(&[][..], Vec::as_slice);
                let mut packed = vec![0.0; PackedHead::size(rows.len(), shape.width)];
                let keys = View::rows(group * 2 * shape.width, rows.len(), shape.width, shape.kept());
                let values = View { offset: keys.offset + shape.width, ..keys };
                PackedHead::pack(isa, kept, keys, values, &mut packed);
                for head in 0..each {
                    let column = (group * each + head) * shape.width;
                    let queries = Queries {
                        values: &inputs.values()[rows.start * inputs.stride() + column..],
                        count: rows.len(),
                        stride: inputs.stride(),
                    };
                    let order = Distances { values: &order, start: longest - 1, step: -1 };
                    let keys = PackedHead::new(&packed, rows.len(), shape.width);
                    attend(isa, keys, queries, scale, Some(order), &mut |query, values| {
                        part.row_mut(query)[head * shape.width..][..shape.width].copy_from_slice(values);
                    });
                }
            });
            layer.own.output.add(machine, mixed, &mut xs);
            self.feed_forward(machine, layer, normed, inner, &mut xs);
        }
        machine.buffers = buffers;
        self.norm.forward(machine.core.isa, machine.core.pool, &mut xs);
        Ok((xs, prompts))
    }

    fn feed_forward(
        &self,
        machine: &mut Machine,
        layer: &CausalLayer,
        normed: &mut Rows,
        inner: &mut Rows,
        xs: &mut Rows,
    ) {
        let part = &layer.feed_forward;
        part.norm.forward_to(machine.core.isa, machine.core.pool, xs, normed);
        part.add(machine, Some(normed), inner, xs);
    }

    /// Continues every sequence by a token, and returns the states after the last norm.
    fn step(&self, machine: &mut Machine, tokens: &[u32], kept: &mut KvCache) -> Result<Rows> {
        let rotations = Rotations::new(&self.steps, kept.lengths());
        let places: Vec<usize> = (0..kept.rows()).collect();
        let mut xs = self.embeddings(machine, tokens)?;
        kept.steps.push(xs.count());
        let rows: Vec<_> = (0..xs.count()).map(|row| row..row + 1).collect();
        let shape = self.heads;
        let each = shape.each();
        let mut buffers = std::mem::take(&mut machine.buffers);
        for (at, layer) in self.layers.iter().enumerate() {
            let Buffers { normed, inputs, mixed, inner } = &mut buffers;
            layer.own.norm.forward_to(machine.core.isa, machine.core.pool, &xs, normed);
            layer.own.inputs.forward(machine, normed, inputs);
            rotations.turn(machine, inputs, shape.turned(), &places);
            let mut block = Rows::new(xs.count(), shape.kept());
            for row in 0..xs.count() {
                shape.keep(inputs.row(row), block.row_mut(row));
            }
            kept.steps.extend(at, block);
            mixed.reshape(xs.count(), shape.heads * shape.width);
            let (isa, scale, inputs, kept) = (machine.core.isa, self.scale(), &*inputs, &*kept);
            mixed.each_part(machine.core.pool, &rows, each * shape.width, &|row, group, mut part| {
                let seen = kept.seen(at, row, group, shape);
                let queries = &inputs.row(row)[group * each * shape.width..][..each * shape.width];
                let out = part.row_mut(0);
                for (queries, out) in queries.chunks_exact(shape.width).zip(out.chunks_exact_mut(shape.width))
                {
                    attend_steps(isa, queries, &seen, 1, scale, None, out);
                }
            });
            layer.own.output.add(machine, mixed, &mut xs);
            self.feed_forward(machine, layer, normed, inner, &mut xs);
        }
        machine.buffers = buffers;
        self.norm.forward(machine.core.isa, machine.core.pool, &mut xs);
        Ok(xs)
    }
}

impl CausalLm for PackedLlama {
    fn begin(&self, input: &Batch, cache: &mut CausalCache) -> Result<Vec<f32>> {
        if cache.rows() != 0 {
            let found = format!("one of {} rows", cache.rows());
            return Err(Error::Batch { expected: "an empty cache".into(), found });
        }
        let ragged = Ragged::new(input)?;
        self.machines.with(|machine| {
            let (xs, prompts) = self.read(machine, &ragged.tokens, &ragged.lengths)?;
            let mut last = Rows::new(prompts.len(), self.width);
            let mut end = 0;
            for (row, length) in ragged.lengths.iter().enumerate() {
                end += length;
                last.row_mut(row).copy_from_slice(xs.row(end - 1));
            }
            cache.packed = Some(KvCache::new(prompts, self.layers.len()));
            Ok(self.head.values(machine, &last))
        })
    }

    fn decode(&self, tokens: &[u32], rows: usize, cache: &mut CausalCache) -> Result<Vec<f32>> {
        if rows == 0 || tokens.is_empty() || !tokens.len().is_multiple_of(rows) {
            let found = format!("{} tokens", tokens.len());
            return Err(Error::Batch { expected: format!("as many tokens for each of {rows} rows"), found });
        }
        let each = tokens.len() / rows;
        if cache.rows() == 0 {
            let rows: Vec<&[u32]> = tokens.chunks_exact(each).collect();
            return self.begin(&Batch::new(&rows, self.tokens.pad, &self.device)?, cache);
        }
        if cache.rows() != rows {
            let (expected, found) = (format!("tokens for {} rows", cache.rows()), format!("{rows} rows"));
            return Err(Error::Batch { expected, found });
        }
        let Some(kept) = &mut cache.packed else {
            let (expected, found) = ("a cache of this model".into(), "another model's".into());
            return Err(Error::Batch { expected, found });
        };
        self.machines.with(|machine| {
            let mut xs = Rows::default();
            for at in 0..each {
                let column: Vec<u32> = (0..rows).map(|row| tokens[row * each + at]).collect();
                xs = self.step(machine, &column, kept)?;
            }
            Ok(self.head.values(machine, &xs))
        })
    }

    fn forward(&self, input: &Batch) -> Result<Tensor> {
        let ragged = Ragged::new(input)?;
        self.machines.with(|machine| {
            let (xs, _) = self.read(machine, &ragged.tokens, &ragged.lengths)?;
            let mut logits = Rows::default();
            self.head.forward(machine, &xs, &mut logits);
            ragged.padded(&logits, &self.device)
        })
    }

    fn special_tokens(&self) -> &SpecialTokens {
        &self.tokens
    }

    fn generation_defaults(&self) -> &GenerationOptions {
        &self.generation
    }

    fn vocab_size(&self) -> usize {
        self.head.matrix.outputs()
    }

    fn max_length(&self) -> usize {
        self.max_length
    }

    fn has_learned_positions(&self) -> bool {
        false
    }

    fn joins(&self) -> bool {
        true
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
