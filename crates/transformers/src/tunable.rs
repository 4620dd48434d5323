//! Encoders over variables, whose states can be differentiated.

use candle_core::Tensor;
use candle_nn::VarBuilder;
use sporran_checkpoint::{Error, Result};

use crate::{
    architectures::{
        ModelConfig,
        bert::{Bert, BertModel, Head},
        decoder::DecoderEncoder,
        llama::Llama,
        modernbert::{self, ModernBert},
    },
    batch::Batch,
    encoder::Encoder,
    mode::Mode,
};

/// A body and a head over the weights of one builder, for training and inference.
#[derive(Debug)]
pub struct TunableEncoder {
    body: Body,
    /// The head of the model's task.
    pub head: Head,
}

#[derive(Debug)]
enum Body {
    Bert(Box<Bert>),
    ModernBert(Box<ModernBert>),
    /// Of LLaMA's shape, in both directions.
    Decoder(Box<DecoderEncoder<Llama>>),
}

impl TunableEncoder {
    /// Takes the weights from `vb`, by their names in `transformers`.
    ///
    /// # Errors
    /// [`Error::Architecture`] for a config that [`ModelConfig::with_task`] does not make, and those of the model.
    pub fn new(config: &ModelConfig, vb: &VarBuilder) -> Result<Self> {
        let (body, head) = match config {
            ModelConfig::Bert(config) => {
                let BertModel { body, head } = BertModel::new(config, vb)?;
                (Body::Bert(Box::new(body)), head)
            }
            ModelConfig::ModernBert(config) => {
                let body = ModernBert::new(config, vb)?;
                let head = modernbert::head(config, || Ok(body.table().clone()), vb)?;
                (Body::ModernBert(Box::new(body)), head)
            }
            ModelConfig::Llama(own) if config.is_tunable() => {
                let body = DecoderEncoder::new(Llama::new(own, vb)?, own.embedding_width());
                (Body::Decoder(Box::new(body)), own.encoder_head(vb)?)
            }
            other => {
                let found = format!("`{}`", other.model_type());
                return Err(Error::Architecture {
                    path: "config.json".into(),
                    expected: "an encoder to tune",
                    found,
                });
            }
        };
        Ok(Self { body, head })
    }

    /// The last hidden states (b, s, d) of the inputs, in the dtype of the weights.
    ///
    /// # Errors
    /// A tensor error, or [`Error::Batch`] where an input is too long.
    pub fn forward(&self, input: &Batch, mode: &mut Mode) -> Result<Tensor> {
        match &self.body {
            Body::Bert(body) => body.forward(input, mode),
            Body::ModernBert(body) => body.forward(input, mode),
            Body::Decoder(body) => body.states_in(input, mode),
        }
    }

    /// The body, for inference.
    #[must_use]
    pub fn encoder(&self) -> &dyn Encoder {
        match &self.body {
            Body::Bert(body) => &**body,
            Body::ModernBert(body) => &**body,
            Body::Decoder(body) => &**body,
        }
    }
}
