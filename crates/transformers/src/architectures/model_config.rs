//! Which architecture a `config.json` describes.

use std::path::Path;

use candle_core::{DType, Device};
use candle_nn::{VarBuilder, VarMap};
use serde_json::Value;
use sporran_checkpoint::{
    Architecture, Error, ModelKind, Parameter, Result, SpecialTokens, initialise, json::parse,
};

use crate::{
    architectures::{
        bart::{Bart, BartConfig},
        bert::{BertConfig, BertFamily, BertTask},
        gpt2::{Gpt2, Gpt2Config},
        llama::{Llama, LlamaConfig, LlamaKind},
        modernbert::ModernBertConfig,
        t5::{T5, T5Config, T5EncoderConfig},
    },
    causal::TrainableCausal,
    decode::GenerationOptions,
    seq2seq::Trainable,
};

/// The config of a model, by its architecture.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "a process has a few configs")]
pub enum ModelConfig {
    /// T5, version 1.0 or 1.1.
    T5(T5Config),
    /// The encoder of a T5 or an mT5 alone.
    T5Encoder(T5EncoderConfig),
    /// BART.
    Bart(BartConfig),
    /// BERT or another [`BertFamily`].
    Bert(BertConfig),
    /// ModernBERT.
    ModernBert(ModernBertConfig),
    /// GPT-2.
    Gpt2(Gpt2Config),
    /// LLaMA and decoders of its shape.
    Llama(LlamaConfig),
}

impl ModelConfig {
    /// Reads the text of a `config.json`; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Json`] where a field has the wrong type, and [`Error::Config`] where the architecture is not one
    /// of this crate or a value cannot be used.
    pub fn from_json(path: &Path, text: &str) -> Result<Self> {
        let kind: ModelKind = parse(path, text)?;
        let class = kind.architectures.as_deref().unwrap_or_default().first().map(String::as_str);
        let config = match kind.model_type.as_deref() {
            Some("t5") if class == Some("T5EncoderModel") => {
                Self::T5Encoder(T5EncoderConfig::from_json(false, path, text)?)
            }
            Some("mt5") if class == Some("MT5EncoderModel") => {
                Self::T5Encoder(T5EncoderConfig::from_json(true, path, text)?)
            }
            Some("mt5") => {
                return Err(Error::Config {
                    path: path.into(),
                    field: "architectures".into(),
                    expected: "`MT5EncoderModel`: of mT5, encoders alone are supported".into(),
                    found: class.map_or_else(|| "none".into(), |class| format!("`{class}`")),
                });
            }
            Some("t5") => Self::T5(parse(path, text)?),
            Some("bart") => Self::Bart(parse(path, text)?),
            Some("bert") => Self::Bert(BertConfig::from_json(BertFamily::Bert, path, text)?),
            Some("roberta") => Self::Bert(BertConfig::from_json(BertFamily::Roberta, path, text)?),
            Some("xlm-roberta") => Self::Bert(BertConfig::from_json(BertFamily::XlmRoberta, path, text)?),
            Some("distilbert") => Self::Bert(BertConfig::from_json(BertFamily::DistilBert, path, text)?),
            Some("dpr") => Self::Bert(BertConfig::from_json(BertFamily::Dpr, path, text)?),
            Some("camembert") => Self::Bert(BertConfig::from_json(BertFamily::Camembert, path, text)?),
            Some("mpnet") => Self::Bert(BertConfig::from_json(BertFamily::Mpnet, path, text)?),
            Some("electra") => Self::Bert(BertConfig::from_json(BertFamily::Electra, path, text)?),
            Some("albert") => Self::Bert(BertConfig::from_json(BertFamily::Albert, path, text)?),
            Some("deberta-v2") => Self::Bert(BertConfig::from_json(BertFamily::Deberta, path, text)?),
            Some("modernbert") => Self::ModernBert(ModernBertConfig::from_json(path, text)?),
            Some("gpt2") => Self::Gpt2(parse(path, text)?),
            Some("rag") => {
                return Err(Error::Config {
                    path: path.into(),
                    field: "model_type".into(),
                    expected: "a model of one part".into(),
                    found: "`rag`, whose parts are opened one by one".into(),
                });
            }
            // Gemma 3 with images.
            Some("gemma3") => Self::Llama(LlamaConfig::of_text_part(path, text)?),
            found => match found.and_then(LlamaKind::named) {
                Some(kind) => Self::Llama(LlamaConfig::from_json(kind, path, text)?),
                None => {
                    return Err(Error::Config {
                        path: path.into(),
                        field: "model_type".into(),
                        expected: "`t5`, `mt5`, `bart`, `bert`, `roberta`, `xlm-roberta`, `camembert`, `distilbert`, `dpr`, \
                                   `mpnet`, `electra`, `albert`, `deberta-v2`, `modernbert`, `gpt2`, `llama`, `qwen2`, \
                                   `qwen3`, `mistral`, `gemma2`, `gemma3`, `gemma3_text`, `smollm3`, `phi3`, `olmo2` or \
                                   `granite`"
                            .into(),
                        found: found.map_or_else(|| "none".into(), |found| format!("`{found}`")),
                    });
                }
            },
        };
        let architecture = config.architecture();
        architecture.check_sizes().map_err(|error| error.within(path))?;
        architecture.validate().map_err(|error| error.within(path))?;
        Ok(config)
    }

    /// The description of the architecture.
    #[must_use]
    pub fn architecture(&self) -> &(dyn Architecture + 'static) {
        match self {
            Self::T5(config) => config,
            Self::T5Encoder(config) => config,
            Self::Bart(config) => config,
            Self::Bert(config) => config,
            Self::ModernBert(config) => config,
            Self::Gpt2(config) => config,
            Self::Llama(config) => config,
        }
    }

    /// The same, to be changed where the weights differ from the config.
    pub(crate) fn architecture_mut(&mut self) -> &mut dyn Architecture {
        match self {
            Self::T5(config) => config,
            Self::T5Encoder(config) => config,
            Self::Bart(config) => config,
            Self::Bert(config) => config,
            Self::ModernBert(config) => config,
            Self::Gpt2(config) => config,
            Self::Llama(config) => config,
        }
    }

    /// The generation options of the architecture, for a folder without a `generation_config.json`.
    pub(crate) fn generation_defaults(&self) -> GenerationOptions {
        match self {
            Self::Bart(config) => config.generation_defaults(),
            _ => GenerationOptions::default(),
        }
    }

    /// The `model_type` of a `config.json`.
    #[must_use]
    pub fn model_type(&self) -> &'static str {
        self.architecture().model_type()
    }

    /// Whether the model is decoder-only and continues its input.
    #[must_use]
    pub fn is_causal(&self) -> bool {
        matches!(self, Self::Gpt2(_) | Self::Llama(_))
    }

    /// The task of an encoder's head; none for other models.
    #[must_use]
    pub fn encoder_task(&self) -> Option<BertTask> {
        match self {
            Self::Bert(config) => Some(config.task),
            Self::ModernBert(config) => Some(config.task),
            Self::T5Encoder(_) => Some(BertTask::States),
            _ => None,
        }
    }

    /// The names of an encoder's labels, by number; none for other models.
    #[must_use]
    pub fn labels(&self) -> &[String] {
        match self {
            Self::Bert(config) => &config.labels,
            Self::ModernBert(config) => &config.labels,
            _ => &[],
        }
    }

    /// The text of the `config.json` that describes this model, to `transformers` too.
    #[must_use]
    pub fn to_json(&self) -> Value {
        self.architecture().to_json()
    }

    /// The number of embeddings.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::T5(config) => config.vocab_size,
            Self::T5Encoder(config) => config.sizes.vocab_size,
            Self::Bart(config) => config.vocab_size,
            Self::Bert(config) => config.vocab_size,
            Self::ModernBert(config) => config.vocab_size,
            Self::Gpt2(config) => config.vocab_size,
            Self::Llama(config) => config.vocab_size,
        }
    }

    /// Builds the model from the tensors of `vb`, with the tokens and generation defaults of its folder.
    ///
    /// # Errors
    /// [`Error::Architecture`] for a model that is no encoder-decoder; [`Error::Config`] or a tensor error where the
    /// tensors are not those of [`parameters`](Self::parameters).
    pub fn build(
        &self,
        vb: &VarBuilder,
        tokens: SpecialTokens,
        generation: GenerationOptions,
    ) -> Result<Box<dyn Trainable>> {
        match self {
            Self::T5(config) => Ok(Box::new(T5::new(config, vb)?.with_defaults(tokens, generation))),
            Self::Bart(config) => Ok(Box::new(Bart::new(config, vb)?.with_defaults(tokens, generation))),
            _ => Err(self.other_kind("an encoder-decoder")),
        }
    }

    /// Builds the decoder-only model from the tensors of `vb`, with the tokens and generation defaults of its folder.
    ///
    /// # Errors
    /// As for [`build`](Self::build).
    pub fn build_causal(
        &self,
        vb: &VarBuilder,
        tokens: SpecialTokens,
        generation: GenerationOptions,
    ) -> Result<Box<dyn TrainableCausal>> {
        match self {
            Self::Gpt2(config) => Ok(Box::new(Gpt2::new(config, vb)?.with_defaults(tokens, generation))),
            Self::Llama(config) => Ok(Box::new(Llama::new(config, vb)?.with_defaults(tokens, generation))),
            _ => Err(self.other_kind("a decoder-only model")),
        }
    }

    fn other_kind(&self, expected: &'static str) -> Error {
        let found = format!("`{}`", self.model_type());
        Error::Architecture { path: "config.json".into(), expected, found }
    }

    /// The tensors that the model is built from, in the order of its definition.
    ///
    /// # Errors
    /// [`Error::Config`] where a value cannot be used.
    pub fn parameters(&self) -> Result<Vec<Parameter>> {
        self.architecture().parameters()
    }

    /// Fresh trainable weights, by the architecture's own scheme, from `seed`.
    ///
    /// # Errors
    /// [`Error::Config`] where a value cannot be used, or a tensor error where memory ends.
    pub fn initialise(&self, seed: u64, dtype: DType, device: &Device) -> Result<VarMap> {
        initialise(&self.parameters()?, seed, dtype, device)
    }
}

impl AsRef<dyn Architecture> for ModelConfig {
    fn as_ref(&self) -> &(dyn Architecture + 'static) {
        self.architecture()
    }
}
