//! The packed body of BERT and its kin.

use candle_core::{Device, Tensor};
use sporran_checkpoint::{Error, Result};
use sporran_kernels::{Norm, Rows, Table};

use super::{
    layers::{Linear, Machine, Machines},
    ragged::{Ragged, Token, counted_from_padding},
    stack::{Positions, Stack},
};
use crate::{architectures::bert::BertConfig, batch::Batch, encoder::Encoder, seq2seq::too_long};

/// The body of BERT or of another [`BertFamily`](crate::BertFamily) for inference on a CPU. Its oracle is
/// [`Bert`](crate::Bert).
#[derive(Debug)]
pub struct PackedEncoder {
    /// (vocabulary, width)
    pub(super) words: Table,
    /// (positions, width)
    pub(super) positions: Option<Vec<f32>>,
    /// (types, width)
    pub(super) types: Option<Vec<f32>>,
    /// (tasks, width)
    pub(super) tasks: Option<Vec<f32>>,
    /// The normalisation of embeddings and their projection to hidden states, where they are narrower.
    pub(super) projection: Option<(Norm, Linear)>,
    pub(super) stack: Stack,
    pub(super) config: BertConfig,
    pub(super) device: Device,
    pub(super) machines: Machines,
}

impl PackedEncoder {
    /// The rows of the table of positions for `tokens`.
    fn position_rows(&self, tokens: &[Token]) -> Vec<usize> {
        if self.config.first_position() == 0 {
            return tokens.iter().map(|token| token.position).collect();
        }
        counted_from_padding(tokens, self.config.pad_token_id)
    }

    /// The sum of the embeddings of each token.
    fn embeddings(&self, machine: &Machine, tokens: &[Token], types: Option<&[Vec<u32>]>) -> Result<Rows> {
        let width = self.config.embedding_width();
        let below = |what: &str, bound: usize, id: Option<u32>| match id {
            Some(id) => {
                Err(Error::Batch { expected: format!("{what} below {bound}"), found: id.to_string() })
            }
            None => Ok(()),
        };
        let vocabulary = self.config.vocab_size;
        let surplus = tokens.iter().map(|token| token.id).find(|id| *id as usize >= vocabulary);
        below("token ids", vocabulary, surplus)?;
        let kind = |token: &Token| types.map_or(0, |types| types[token.input][token.position]);
        if self.types.is_some() {
            let kinds = self.config.type_vocab_size;
            below("token types", kinds, tokens.iter().map(kind).find(|id| *id as usize >= kinds))?;
        }
        let positions = self.position_rows(tokens);
        let mut xs = Rows::new(tokens.len(), width);
        let blocks: Vec<_> = (0..tokens.len()).map(|row| row..row + 1).collect();
        xs.each_part(machine.core.pool, &blocks, width, &|row, _, mut part| {
            let token = &tokens[row];
            let out = part.row_mut(0);
            self.words.row(token.id as usize, out);
            let mut add = |table: &[f32], row: usize| {
                out.iter_mut().zip(&table[row * width..][..width]).for_each(|(value, other)| *value += other);
            };
            if let Some(table) = &self.types {
                add(table, kind(token) as usize);
            }
            if let Some(table) = &self.positions {
                add(table, positions[row]);
            }
            if let Some(table) = &self.tasks {
                add(table, 0);
            }
        });
        Ok(xs)
    }
}

impl PackedEncoder {
    /// The tokens of a batch.
    fn ragged(&self, input: &Batch) -> Result<Ragged> {
        let most = self.config.max_input_length();
        if input.length() > most {
            return Err(too_long("input", most, input.length()));
        }
        // Relative positions are counted along a run of tokens.
        match self.stack.positions {
            Positions::Embedded => Ragged::with_gaps(input),
            _ => Ragged::new(input),
        }
    }

    /// The last states of all tokens, or of the `wanted` ones, whose rows must rise; `see` is shown the embeddings and the states
    /// after each layer.
    fn run(
        &self,
        input: &Batch,
        ragged: &Ragged,
        wanted: Option<&[usize]>,
        see: &mut dyn FnMut(&Rows),
    ) -> Result<Rows> {
        let types = input.types.as_ref().map(|types| types.to_vec2::<u32>()).transpose()?;
        self.machines.with(|machine| {
            let mut xs = self.embeddings(machine, &ragged.tokens, types.as_deref())?;
            if let Some((norm, projection)) = &self.projection {
                norm.forward(machine.core.isa, machine.core.pool, &mut xs);
                let mut projected = Rows::default();
                projection.forward(machine, &xs, &mut projected);
                xs = projected;
            }
            Ok(self.stack.encode(machine, xs, &ragged.lengths, wanted, see))
        })
    }
}

impl Encoder for PackedEncoder {
    fn states(&self, input: &Batch) -> Result<Tensor> {
        let ragged = self.ragged(input)?;
        let xs = self.run(input, &ragged, None, &mut |_| {})?;
        ragged.padded(&xs, &self.device)
    }

    fn states_at(&self, input: &Batch, tokens: &[(usize, usize)]) -> Result<Tensor> {
        let ragged = self.ragged(input)?;
        ragged.states_at(tokens, &self.device, |wanted| self.run(input, &ragged, Some(wanted), &mut |_| {}))
    }

    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>> {
        let mut layers = Vec::with_capacity(1 + self.stack.order.len());
        let ragged = self.ragged(input)?;
        let last = self.run(input, &ragged, None, &mut |xs| layers.push(xs.clone()))?;
        if self.stack.final_norm.is_some() {
            // The last layer's states are those after the norm.
            layers.pop();
            layers.push(last);
        }
        layers.iter().map(|xs| ragged.padded(xs, &self.device)).collect()
    }

    fn width(&self) -> usize {
        self.config.hidden_size
    }

    fn max_input_length(&self) -> usize {
        self.config.max_input_length()
    }

    fn takes_types(&self) -> bool {
        self.config.takes_types()
    }

    fn pad_token(&self) -> u32 {
        self.config.pad_token_id
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
