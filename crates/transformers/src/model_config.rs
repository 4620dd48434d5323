//! Which architecture a `config.json` describes.

use std::path::Path;

use candle_core::{DType, Device};
use candle_nn::{VarBuilder, VarMap};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    bart::Bart,
    bart_config::BartConfig,
    decode::GenerationOptions,
    error::{Error, Result},
    json::parse,
    seq2seq::Seq2Seq,
    t5::T5,
    t5_config::T5Config,
    tokens::{SpecialTokens, TokenFields},
    weights::{Parameter, initialise, parameters},
};

/// The config of a model, by its architecture.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ModelConfig {
    /// T5, version 1.0 or 1.1.
    T5(T5Config),
    /// BART.
    Bart(BartConfig),
}

/// A tensor name and the other names that checkpoints give to the same tensor.
#[derive(Debug)]
pub(crate) struct Alias {
    pub(crate) name: &'static str,
    pub(crate) others: &'static [&'static str],
}

impl ModelConfig {
    /// Reads the text of a `config.json`; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Json`] where a field has the wrong type, and [`Error::Config`] where the architecture is not one
    /// of this crate or a value cannot be used.
    pub fn from_json(path: &Path, text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Kind {
            model_type: Option<String>,
        }
        let kind: Kind = parse(path, text)?;
        let config = match kind.model_type.as_deref() {
            Some("t5") => Self::T5(parse(path, text)?),
            Some("bart") => Self::Bart(parse(path, text)?),
            found => {
                return Err(Error::Config {
                    path: path.into(),
                    field: "model_type".into(),
                    expected: "`t5` or `bart`".into(),
                    found: found.map_or_else(|| "none".into(), |found| format!("`{found}`")),
                });
            }
        };
        config.validate().map_err(|error| error.within(path))?;
        Ok(config)
    }

    fn validate(&self) -> Result<()> {
        match self {
            Self::T5(config) => config.validate(),
            Self::Bart(config) => config.validate(),
        }
    }

    /// The text of the `config.json` that describes this model, to `transformers` too.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (mut value, kind, architecture) = match self {
            Self::T5(config) => (json!(config), "t5", "T5ForConditionalGeneration"),
            Self::Bart(config) => (json!(config), "bart", "BartForConditionalGeneration"),
        };
        if let Value::Object(fields) = &mut value {
            if let Self::T5(config) = self {
                // Spelt out, as `transformers` cannot generate without it.
                fields.insert("decoder_start_token_id".into(), json!(config.special_tokens().decoder_start));
            }
            fields.insert("model_type".into(), json!(kind));
            fields.insert("architectures".into(), json!([architecture]));
            fields.insert("is_encoder_decoder".into(), json!(true));
        }
        value
    }

    /// Builds the model from the tensors of `vb`, with the tokens and generation defaults of its folder.
    ///
    /// # Errors
    /// [`Error::Config`] or a tensor error where the tensors are not those of [`parameters`](Self::parameters).
    pub fn build(
        &self,
        vb: &VarBuilder,
        tokens: SpecialTokens,
        generation: GenerationOptions,
    ) -> Result<Box<dyn Seq2Seq>> {
        match self {
            Self::T5(config) => Ok(Box::new(T5::new(config, vb)?.with_defaults(tokens, generation))),
            Self::Bart(config) => Ok(Box::new(Bart::new(config, vb)?.with_defaults(tokens, generation))),
        }
    }

    /// The tensors that the model is built from, in the order of its definition.
    ///
    /// # Errors
    /// [`Error::Config`] where a value cannot be used.
    pub fn parameters(&self) -> Result<Vec<Parameter>> {
        match self {
            Self::T5(config) => parameters(|vb| T5::new(config, vb)),
            Self::Bart(config) => parameters(|vb| Bart::new(config, vb)),
        }
    }

    /// Fresh trainable weights, by the architecture's own scheme, from `seed`.
    ///
    /// # Errors
    /// [`Error::Config`] where a value cannot be used, or a tensor error where memory ends.
    pub fn initialise(&self, seed: u64, dtype: DType, device: &Device) -> Result<VarMap> {
        initialise(&self.parameters()?, seed, dtype, device)
    }

    /// Whether the head shares the embedding table.
    pub(crate) fn tied(&self) -> bool {
        match self {
            Self::T5(config) => config.tie_word_embeddings,
            Self::Bart(config) => config.tie_word_embeddings,
        }
    }

    /// The same model with a head of its own.
    pub(crate) fn untied(self) -> Self {
        match self {
            Self::T5(config) => {
                // The scaling stays what the config said.
                let scale = Some(config.scales_decoder_outputs());
                Self::T5(T5Config { tie_word_embeddings: false, scale_decoder_outputs: scale, ..config })
            }
            Self::Bart(config) => Self::Bart(BartConfig { tie_word_embeddings: false, ..config }),
        }
    }

    /// What stands for a special token where neither JSON file of a folder names it.
    pub(crate) fn default_tokens(&self) -> TokenFields {
        match self {
            Self::T5(config) => {
                let eos = config.eos_token_id.first().copied().unwrap_or(1);
                TokenFields::defaults(config.pad_token_id, eos, None, Some(config.pad_token_id))
            }
            Self::Bart(config) => {
                let eos = config.eos_token_id.first().copied().unwrap_or(2);
                let start = Some(config.decoder_start_token_id);
                TokenFields::defaults(config.pad_token_id, eos, config.bos_token_id, start)
            }
        }
    }

    /// The embedding table and its other names. The head's name is among them where it shares the table.
    pub(crate) fn embedding(&self) -> Alias {
        match self {
            Self::T5(_) => Alias {
                name: "shared.weight",
                others: &["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"],
            },
            Self::Bart(_) => Alias {
                name: "model.shared.weight",
                others: &["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"],
            },
        }
    }

    /// Tensors that checkpoints hold and that no computation uses.
    pub(crate) fn ignorable(&self) -> &'static [&'static str] {
        match self {
            Self::T5(_) => &["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"],
            Self::Bart(_) => &["model.encoder.version", "model.decoder.version"],
        }
    }

    /// The model's name for a tensor that a checkpoint calls `name`: some leave BART's `model.` out.
    pub(crate) fn full_name(&self, name: &str) -> String {
        let whole = match self {
            Self::T5(_) => true,
            Self::Bart(_) => {
                name.starts_with("model.") || name == "lm_head.weight" || name == "final_logits_bias"
            }
        };
        if whole { name.into() } else { format!("model.{name}") }
    }

    /// The generation options of the architecture, for a folder without a `generation_config.json`.
    pub(crate) fn generation_defaults(&self) -> GenerationOptions {
        match self {
            Self::T5(_) => GenerationOptions::default(),
            Self::Bart(config) => config.generation_defaults(),
        }
    }

    /// Tensors that are fresh where a checkpoint does not have them.
    pub(crate) fn optional(&self) -> &'static [&'static str] {
        match self {
            Self::T5(_) => &[],
            Self::Bart(_) => &["final_logits_bias"],
        }
    }
}
