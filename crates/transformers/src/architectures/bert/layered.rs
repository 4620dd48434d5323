//! What the bodies for inference that are no [`Bert`](super::Bert) share: an encoder out of their layers.

use candle_core::{Device, Tensor};
use sporran_checkpoint::Result;

use super::config::BertConfig;
use crate::{batch::Batch, encoder::Encoder};

/// A body that computes its states layer by layer.
pub(super) trait Layers: Send + Sync {
    /// The config.
    fn config(&self) -> &BertConfig;

    /// The device of the weights.
    fn device(&self) -> &Device;

    /// The embedding table, (vocabulary, d); of a body with narrow embeddings (vocabulary, narrow).
    fn table(&self) -> &Tensor;

    /// Computes the last states, (b, s, d). Calls `see` with the embeddings and with the states after each layer.
    ///
    /// # Errors
    /// A tensor error.
    fn each_layer(&self, input: &Batch, see: &mut dyn FnMut(&Tensor)) -> Result<Tensor>;
}

/// A body as an encoder.
pub(super) struct Layered<B>(pub(super) B);

impl<B: Layers> Encoder for Layered<B> {
    fn states(&self, input: &Batch) -> Result<Tensor> {
        Ok(self.0.each_layer(input, &mut |_| {})?.detach())
    }

    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>> {
        let mut layers = Vec::with_capacity(1 + self.0.config().num_hidden_layers);
        self.0.each_layer(input, &mut |xs| layers.push(xs.detach()))?;
        Ok(layers)
    }

    fn width(&self) -> usize {
        self.0.config().hidden_size
    }

    fn max_input_length(&self) -> usize {
        self.0.config().max_input_length()
    }

    fn takes_types(&self) -> bool {
        self.0.config().takes_types()
    }

    fn pad_token(&self) -> u32 {
        self.0.config().pad_token_id
    }

    fn device(&self) -> &Device {
        self.0.device()
    }
}
