//! The packed encoder-decoder.

use candle_core::Device;
use sporran_checkpoint::{Error, Result, SpecialTokens};
use sporran_kernels::{Precision, Rows, Table};

use super::{
    cache::{Source, State},
    layers::{Buffers, Linear, Machine, Machines},
    ragged::{Ragged, counted_from_padding},
    stack::{Positions, Stack},
};
use crate::{
    architectures::bart::{closed_sinusoids, sinusoids},
    batch::Batch,
    cache::Cache,
    decode::GenerationOptions,
    seq2seq::{Memory, Seq2Seq, too_long},
};

/// A model of T5's or BART's shape for inference on a CPU.
#[derive(Debug)]
pub struct PackedSeq2Seq {
    /// The embedding table where the head does not share it: (vocabulary, width).
    pub(super) embeddings: Option<Table>,
    pub(super) embedding_scale: f32,
    pub(super) head: Linear,
    /// The factor of the decoder's states before the head.
    pub(super) head_scale: f32,
    pub(super) encoder: Stack,
    pub(super) decoder: Stack,
    pub(super) width: usize,
    pub(super) precision: Precision,
    pub(super) tokens: SpecialTokens,
    pub(super) generation: GenerationOptions,
    pub(super) device: Device,
    pub(super) machines: Machines,
}

impl PackedSeq2Seq {
    /// Writes the embedding of `token`, times the factor where the stack has one, without its position.
    fn embed(&self, stack: &Stack, token: u32, out: &mut [f32]) {
        match &self.embeddings {
            Some(table) => table.row(token as usize, out),
            None => self.head.matrix.output(token as usize, out),
        }
        if self.embedding_scale != 1.0 && stack.word_norm.is_none() {
            out.iter_mut().for_each(|value| *value *= self.embedding_scale);
        }
    }

    /// Adds the vector of a token's position.
    fn add_position(&self, stack: &Stack, (token, position): (u32, usize), out: &mut [f32]) {
        let mut add = |vector: &[f32]| {
            out.iter_mut().zip(vector).for_each(|(value, position)| *value += position);
        };
        match &stack.positions {
            Positions::Learned { table, offset, .. } => {
                add(&table[(offset + position) * self.width..][..self.width]);
            }
            Positions::Sinusoids { .. } => {
                let mut vector = vec![0.0; self.width];
                sinusoids(position, &mut vector);
                add(&vector);
            }
            Positions::CountedSinusoids { pad, .. } if token != *pad => {
                let mut vector = vec![0.0; self.width];
                closed_sinusoids(position, &mut vector);
                add(&vector);
            }
            Positions::CountedSinusoids { .. }
            | Positions::Relative { .. }
            | Positions::Disentangled(_)
            | Positions::Falling(_)
            | Positions::Rotary { .. }
            | Positions::Embedded => {}
        }
    }

    /// The position of a decoder's token after `past` others.
    fn next_position(stack: &Stack, past: usize) -> usize {
        match &stack.positions {
            Positions::CountedSinusoids { pad, .. } => *pad as usize + 1 + past,
            _ => past,
        }
    }

    /// The embeddings of `tokens`, each with its position.
    fn embeddings(&self, machine: &Machine, stack: &Stack, tokens: &[(u32, usize)]) -> Result<Rows> {
        let vocabulary = self.vocab_size();
        if let Some((token, _)) = tokens.iter().find(|(token, _)| *token as usize >= vocabulary) {
            return Err(Error::Batch {
                expected: format!("token ids below {vocabulary}"),
                found: token.to_string(),
            });
        }
        let mut xs = Rows::new(tokens.len(), self.width);
        let blocks: Vec<_> = (0..tokens.len()).map(|row| row..row + 1).collect();
        let is_plain = stack.word_norm.is_none();
        xs.each_part(machine.core.pool, &blocks, self.width, &|row, _, mut part| {
            self.embed(stack, tokens[row].0, part.row_mut(0));
            if is_plain {
                self.add_position(stack, tokens[row], part.row_mut(0));
            }
        });
        if let Some(norm) = &stack.word_norm {
            norm.forward(machine.core.isa, machine.core.pool, &mut xs);
            for (row, token) in tokens.iter().enumerate() {
                self.add_position(stack, *token, xs.row_mut(row));
            }
        }
        Ok(xs)
    }

    /// The number of a stack's positions, where it has an end.
    fn most_positions(stack: &Stack) -> Option<usize> {
        match &stack.positions {
            Positions::Learned { count, .. }
            | Positions::Sinusoids { count }
            | Positions::CountedSinusoids { count, .. } => Some(*count),
            Positions::Relative { .. }
            | Positions::Disentangled(_)
            | Positions::Falling(_)
            | Positions::Rotary { .. }
            | Positions::Embedded => None,
        }
    }

    fn check_length(stack: &Stack, what: &str, length: usize) -> Result<()> {
        match Self::most_positions(stack).filter(|most| length > *most) {
            Some(most) => Err(too_long(what, most, length)),
            None => Ok(()),
        }
    }

    /// The state before the first step: the keys and values of cross-attention.
    fn start(&self, machine: &mut Machine, memory: &Memory) -> Result<State> {
        let (_, _, width) = memory.hidden().dims3()?;
        let mask = memory.mask().to_vec2::<f32>()?;
        let hidden = memory.hidden().flatten_all()?.to_vec1::<f32>()?;
        let seen: Vec<bool> = mask.iter().flatten().map(|seen| *seen != 0.0).collect();
        let lengths: Vec<usize> =
            mask.iter().map(|row| row.iter().filter(|seen| **seen != 0.0).count()).collect();
        if lengths.contains(&0) {
            return Err(Error::Batch {
                expected: "a memory with at least one position of each input".into(),
                found: "an input without".into(),
            });
        }
        let mut states = Rows::new(lengths.iter().sum(), width);
        let kept = hidden.chunks_exact(width).zip(&seen).filter(|(_, seen)| **seen);
        for (row, (values, _)) in kept.enumerate() {
            states.row_mut(row).copy_from_slice(values);
        }
        let (layers, shape) = (self.decoder.layers.len(), [self.decoder.heads, self.decoder.head_width]);
        let mut inputs: Vec<Source> =
            lengths.iter().map(|count| Source::new(*count, layers, shape, self.precision)).collect();
        let mut sources = Rows::default();
        for (at, layer) in self.decoder.layers.iter().enumerate() {
            if let Some(cross) = &layer.cross {
                cross.sources.forward(machine, &states, &mut sources);
                Source::pack(&mut inputs, at, &sources, shape, machine);
            }
        }
        Ok(State::new(inputs, layers))
    }
}

impl Seq2Seq for PackedSeq2Seq {
    fn encode(&self, input: &Batch) -> Result<Memory> {
        Self::check_length(&self.encoder, "input", input.length())?;
        let ragged = Ragged::new(input)?;
        let positions = match &self.encoder.positions {
            Positions::CountedSinusoids { pad, .. } => counted_from_padding(&ragged.tokens, *pad),
            _ => ragged.tokens.iter().map(|token| token.position).collect(),
        };
        let tokens: Vec<(u32, usize)> =
            ragged.tokens.iter().zip(positions).map(|(token, position)| (token.id, position)).collect();
        let xs = self.machines.with(|machine| -> Result<Rows> {
            let xs = self.embeddings(machine, &self.encoder, &tokens)?;
            let xs = self.encoder.encode(machine, xs, &ragged.lengths, None, &mut |_| {});
            // The buffers have room for all tokens of a batch. A decoder's steps never need that much memory.
            machine.buffers = Buffers::default();
            Ok(xs)
        })?;
        Memory::new(ragged.padded(&xs, &self.device)?, input.mask.clone())
    }

    fn decode(&self, tokens: &[u32], rows: usize, memory: &Memory, cache: &mut Cache) -> Result<Vec<f32>> {
        if cache.packed_mut().is_none() {
            Self::check_length(&self.decoder, "decoder", tokens.len() / rows.max(1))?;
            cache.put_packed(self.machines.with(|machine| self.start(machine, memory))?);
        }
        self.resume(tokens, rows, cache)
    }

    fn joins(&self) -> bool {
        true
    }

    fn resume(&self, tokens: &[u32], rows: usize, cache: &mut Cache) -> Result<Vec<f32>> {
        if rows == 0 || tokens.is_empty() || !tokens.len().is_multiple_of(rows) {
            let found = format!("{} tokens", tokens.len());
            return Err(Error::Batch { expected: format!("as many tokens for each of {rows} rows"), found });
        }
        let each = tokens.len() / rows;
        Self::check_length(&self.decoder, "decoder", cache.length() + each)?;
        let mut watched = cache.watched();
        let Some(state) = cache.packed_mut() else {
            let (expected, found) = ("a cache of this model".into(), "an empty one".into());
            return Err(Error::Batch { expected, found });
        };
        if state.inputs() == 0 || !rows.is_multiple_of(state.inputs()) {
            let (expected, found) = (format!("a multiple of {} rows", state.inputs()), rows.to_string());
            return Err(Error::Batch { expected, found });
        }
        let logits = self.machines.with(|machine| -> Result<Vec<f32>> {
            let mut xs = Rows::default();
            for at in 0..each {
                let position = |row| Self::next_position(&self.decoder, state.length_of(row));
                let column: Vec<(u32, usize)> =
                    (0..rows).map(|row| (tokens[row * each + at], position(row))).collect();
                let embedded = self.embeddings(machine, &self.decoder, &column)?;
                xs = self.decoder.step(machine, embedded, state, watched.as_mut());
            }
            if self.head_scale != 1.0 {
                for row in 0..xs.count() {
                    xs.row_mut(row).iter_mut().for_each(|value| *value *= self.head_scale);
                }
            }
            Ok(self.head.values(machine, &xs))
        })?;
        cache.put_watched(watched, each);
        Ok(logits)
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

    fn max_input_length(&self) -> Option<usize> {
        Self::most_positions(&self.encoder)
    }

    fn max_output_length(&self) -> Option<usize> {
        Self::most_positions(&self.decoder)
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
