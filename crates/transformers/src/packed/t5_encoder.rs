//! The packed encoder of a T5 alone.

use candle_core::{Device, Tensor};
use sporran_checkpoint::{Error, Result};
use sporran_kernels::{Rows, Table};

use super::{layers::Machines, ragged::Ragged, stack::Stack};
use crate::{
    architectures::t5::{MOST_TOKENS, T5EncoderConfig},
    batch::Batch,
    encoder::Encoder,
};

/// The encoder of a T5 or an mT5 for inference on a CPU. Its oracle is [`T5Encoder`](crate::T5Encoder).
#[derive(Debug)]
pub struct PackedT5Encoder {
    /// (vocabulary, width)
    pub(super) words: Table,
    pub(super) stack: Stack,
    pub(super) config: T5EncoderConfig,
    pub(super) device: Device,
    pub(super) machines: Machines,
}

impl PackedT5Encoder {
    /// The last states of all tokens, or of the `wanted` ones, whose rows must rise; `see` is shown the embeddings and the
    /// states after each layer, before the last norm.
    fn run(&self, ragged: &Ragged, wanted: Option<&[usize]>, see: &mut dyn FnMut(&Rows)) -> Result<Rows> {
        let (width, vocabulary) = (self.config.sizes.d_model, self.config.sizes.vocab_size);
        let mut xs = Rows::new(ragged.tokens.len(), width);
        for (row, token) in ragged.tokens.iter().enumerate() {
            if token.id as usize >= vocabulary {
                let (expected, found) = (format!("token ids below {vocabulary}"), token.id.to_string());
                return Err(Error::Batch { expected, found });
            }
            self.words.row(token.id as usize, xs.row_mut(row));
        }
        Ok(self.machines.with(|machine| self.stack.encode(machine, xs, &ragged.lengths, wanted, see)))
    }
}

impl Encoder for PackedT5Encoder {
    fn states(&self, input: &Batch) -> Result<Tensor> {
        let ragged = Ragged::new(input)?;
        ragged.padded(&self.run(&ragged, None, &mut |_| {})?, &self.device)
    }

    fn states_at(&self, input: &Batch, tokens: &[(usize, usize)]) -> Result<Tensor> {
        let ragged = Ragged::new(input)?;
        ragged.states_at(tokens, &self.device, |wanted| self.run(&ragged, Some(wanted), &mut |_| {}))
    }

    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>> {
        let ragged = Ragged::new(input)?;
        let mut layers = Vec::with_capacity(1 + self.stack.order.len());
        let last = self.run(&ragged, None, &mut |xs| layers.push(xs.clone()))?;
        // The last layer's states are those after the norm.
        layers.pop();
        layers.push(last);
        layers.iter().map(|xs| ragged.padded(xs, &self.device)).collect()
    }

    fn width(&self) -> usize {
        self.config.sizes.d_model
    }

    fn max_input_length(&self) -> usize {
        MOST_TOKENS
    }

    fn takes_types(&self) -> bool {
        false
    }

    fn pad_token(&self) -> u32 {
        self.config.sizes.pad_token_id
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
