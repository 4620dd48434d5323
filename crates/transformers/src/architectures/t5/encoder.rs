//! The encoder of a T5, an mT5 or a UMT5 alone, as embedders such as Sentence-T5 and GTR have it.

use std::path::Path;

use candle_core::{Device, Tensor};
use candle_nn::VarBuilder;
use serde_json::{Value, json};
use sporran_checkpoint::{Architecture, Embedding as Table, Parameter, Result, parameters};

use super::{
    config::{T5Config, T5Family},
    model::Stack,
};
use crate::{batch::Batch, encoder::Encoder, layers::Embedding, mode::Mode};

/// The config of an encoder alone.
#[derive(Debug, Clone, PartialEq)]
pub struct T5EncoderConfig {
    /// The family and the sizes; those of the decoder mean nothing.
    pub sizes: T5Config,
}

impl T5EncoderConfig {
    /// Reads the text of a `config.json` of a family; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Json`](sporran_checkpoint::Error::Json) where a field has the wrong type.
    pub fn from_json(family: T5Family, path: &Path, text: &str) -> Result<Self> {
        Ok(Self { sizes: T5Config::from_json(family, path, text)? })
    }
}

impl Architecture for T5EncoderConfig {
    fn model_type(&self) -> &'static str {
        self.sizes.family.model_type()
    }

    fn class(&self) -> &'static str {
        self.sizes.family.encoder_class()
    }

    fn validate(&self) -> Result<()> {
        self.sizes.validate()
    }

    fn layers(&self) -> Vec<(&'static str, usize)> {
        vec![("num_layers", self.sizes.num_layers)]
    }

    fn fields(&self) -> Value {
        let mut value = json!(self.sizes);
        if let Value::Object(fields) = &mut value {
            fields.insert("is_encoder_decoder".into(), json!(false));
        }
        value
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        parameters(|vb| T5Encoder::new(self, vb))
    }

    fn canonical(&self, stored: &str) -> String {
        self.sizes.canonical(stored)
    }

    fn embedding(&self) -> Option<Table> {
        Some(Table { name: "shared.weight", others: &["encoder.embed_tokens.weight"], tied_head: None })
    }

    /// The rest of a whole model.
    fn is_ignorable(&self, name: &str) -> bool {
        name.starts_with("decoder.") || name.starts_with("lm_head.")
    }
}

/// The encoder of a T5 (Raffel et al. 2020) alone: token ids to states.
#[derive(Debug, Clone)]
pub struct T5Encoder {
    words: Embedding,
    stack: Stack,
    config: T5EncoderConfig,
    device: Device,
}

/// The most tokens of an input: the positions are relative, so the config sets no limit.
pub(crate) const MOST_TOKENS: usize = i32::MAX as usize;

impl T5Encoder {
    /// Takes the weights from `vb`, by their names in `transformers`.
    ///
    /// # Errors
    /// As for [`T5::new`](crate::T5::new).
    pub fn new(config: &T5EncoderConfig, vb: &VarBuilder) -> Result<Self> {
        config.validate()?;
        let sizes = &config.sizes;
        let (rows, width, std) = (sizes.vocab_size, sizes.d_model, sizes.initializer_factor);
        Ok(Self {
            words: Embedding::new(rows, width, std, &vb.pp("shared"))?,
            stack: Stack::new(sizes, false, &vb.pp("encoder"))?,
            config: config.clone(),
            device: vb.device().clone(),
        })
    }

    /// The config that the model was built from.
    #[must_use]
    pub fn config(&self) -> &T5EncoderConfig {
        &self.config
    }

    /// The last hidden states (b, s, d) of the inputs, in the dtype of the weights.
    ///
    /// # Errors
    /// A tensor error.
    pub fn forward(&self, input: &Batch, mode: &mut Mode) -> Result<Tensor> {
        self.stack.encode(self.words.forward(&input.ids)?, &input.mask, mode, &mut |_| {})
    }
}

impl Encoder for T5Encoder {
    fn states(&self, input: &Batch) -> Result<Tensor> {
        Ok(self.forward(input, &mut Mode::Inference)?.detach())
    }

    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>> {
        let mut layers = Vec::with_capacity(1 + self.config.sizes.num_layers);
        let (xs, mode) = (self.words.forward(&input.ids)?, &mut Mode::Inference);
        let last = self.stack.encode(xs, &input.mask, mode, &mut |xs| layers.push(xs.detach()))?;
        layers.push(last.detach());
        Ok(layers)
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
