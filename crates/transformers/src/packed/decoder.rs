//! The packed decoder-only model as an encoder.

use candle_core::{Device, Tensor};
use sporran_checkpoint::Result;
use sporran_kernels::Rows;

use super::{causal::PackedLlama, ragged::Ragged};
use crate::{batch::Batch, encoder::Encoder};

/// The body of a model of LLaMA's shape, whose hidden states are read, for inference on a CPU. Its
/// oracle is [`Llama`](crate::Llama).
#[derive(Debug)]
pub struct PackedDecoder(pub(super) PackedLlama);

impl PackedDecoder {
    /// The states of all tokens after the last norm; `see` is shown what each layer reads.
    fn run(&self, ragged: &Ragged, see: &mut dyn FnMut(&Rows)) -> Result<Rows> {
        self.0
            .machines
            .with(|machine| Ok(self.0.read(machine, &ragged.tokens, &ragged.lengths, Some(see))?.0))
    }
}

impl Encoder for PackedDecoder {
    fn states(&self, input: &Batch) -> Result<Tensor> {
        let ragged = Ragged::new(input)?;
        ragged.padded(&self.run(&ragged, &mut |_| {})?, self.device())
    }

    fn states_at(&self, input: &Batch, tokens: &[(usize, usize)]) -> Result<Tensor> {
        let ragged = Ragged::new(input)?;
        ragged.states_at(tokens, self.device(), |wanted| {
            let xs = self.run(&ragged, &mut |_| {})?;
            Ok(xs.pick(wanted, xs.width()))
        })
    }

    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>> {
        let ragged = Ragged::new(input)?;
        let mut layers = Vec::new();
        let last = self.run(&ragged, &mut |xs| layers.push(xs.clone()))?;
        layers.push(last);
        layers.iter().map(|xs| ragged.padded(xs, self.device())).collect()
    }

    fn width(&self) -> usize {
        self.0.output_width()
    }

    fn max_input_length(&self) -> usize {
        self.0.max_length
    }

    fn takes_types(&self) -> bool {
        false
    }

    fn pad_token(&self) -> u32 {
        self.0.tokens.pad
    }

    fn device(&self) -> &Device {
        &self.0.device
    }
}
