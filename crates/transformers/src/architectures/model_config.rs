//! Which architecture a `config.json` describes.

use std::path::Path;

use candle_core::{DType, Device};
use candle_nn::{VarBuilder, VarMap};
use serde_json::Value;
use sporran_checkpoint::{
    Architecture, Error, Parameter, Result, SpecialTokens, check_quantisation, initialise,
};

use crate::{
    architectures::{
        bart::{Bart, BartClassifierConfig, BartConfig},
        bert::{BertConfig, BertFamily, BertTask, FamilySettings},
        decoder::DecoderHead,
        gpt2::{Gpt2, Gpt2Config},
        llama::{Llama, LlamaConfig},
        modernbert::ModernBertConfig,
        registry::read_config,
        static_embedding::StaticConfig,
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
    /// T5, version 1.0 or 1.1, mT5 or UMT5.
    T5(T5Config),
    /// The encoder of one of these alone.
    T5Encoder(T5EncoderConfig),
    /// BART, mBART, Pegasus or Marian.
    Bart(BartConfig),
    /// BART with a head of labels for whole texts.
    BartClassifier(BartClassifierConfig),
    /// BERT or another `BertFamily`.
    Bert(BertConfig),
    /// ModernBERT.
    ModernBert(ModernBertConfig),
    /// GPT-2.
    Gpt2(Gpt2Config),
    /// LLaMA and decoders of its shape.
    Llama(LlamaConfig),
    /// Static embeddings.
    StaticEmbedding(StaticConfig),
}

impl ModelConfig {
    /// Reads the text of a `config.json`; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Json`] where a field has the wrong type, and [`Error::Config`] where the architecture is not one
    /// of this crate or a value cannot be used.
    pub fn from_json(path: &Path, text: &str) -> Result<Self> {
        check_quantisation(path, text)?;
        let config = read_config(path, text)?;
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
            Self::BartClassifier(config) => config,
            Self::Bert(config) => config,
            Self::ModernBert(config) => config,
            Self::Gpt2(config) => config,
            Self::Llama(config) => config,
            Self::StaticEmbedding(config) => config,
        }
    }

    /// The same, to be changed where the weights differ from the config.
    pub fn architecture_mut(&mut self) -> &mut dyn Architecture {
        match self {
            Self::T5(config) => config,
            Self::T5Encoder(config) => config,
            Self::Bart(config) => config,
            Self::BartClassifier(config) => config,
            Self::Bert(config) => config,
            Self::ModernBert(config) => config,
            Self::Gpt2(config) => config,
            Self::Llama(config) => config,
            Self::StaticEmbedding(config) => config,
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

    /// The head of a decoder-only model; none for other models.
    #[must_use]
    pub fn decoder_head(&self) -> Option<&DecoderHead> {
        match self {
            Self::Gpt2(config) => Some(&config.head),
            Self::Llama(config) => Some(&config.head),
            _ => None,
        }
    }

    /// The task of an encoder's head, also of a decoder-only model without a head of words; none for other models.
    #[must_use]
    pub fn encoder_task(&self) -> Option<BertTask> {
        match self {
            Self::Bert(config) => Some(config.task),
            Self::ModernBert(config) => Some(config.task),
            Self::BartClassifier(_) => Some(BertTask::SequenceClassification),
            Self::T5Encoder(_) | Self::StaticEmbedding(_) => Some(BertTask::States),
            _ => match self.decoder_head() {
                Some(DecoderHead::Labels(_) | DecoderHead::PooledLabels(..)) => {
                    Some(BertTask::SequenceClassification)
                }
                Some(DecoderHead::TokenLabels(_)) => Some(BertTask::TokenClassification),
                Some(DecoderHead::None) => Some(BertTask::States),
                _ => None,
            },
        }
    }

    /// The names of the labels of a head of labels, by number; none for other models.
    #[must_use]
    pub fn labels(&self) -> &[String] {
        match self {
            Self::Bert(config) => &config.labels,
            Self::ModernBert(config) => &config.labels,
            Self::BartClassifier(config) => &config.labels,
            _ => self.decoder_head().map_or(&[], DecoderHead::labels),
        }
    }

    /// Whether the model is an encoder that can be trained.
    #[must_use]
    pub fn is_tunable(&self) -> bool {
        match self {
            Self::Bert(config) => !matches!(config.own, FamilySettings::Groups(_)) && !config.is_apart(),
            Self::ModernBert(_) => true,
            Self::Llama(config) => config.kind.encoder_classes().is_some(),
            _ => false,
        }
    }

    /// An encoder's config with the head of another task; none for a model that cannot be trained for it. Labels of the same
    /// number keep their names.
    #[must_use]
    pub fn with_task(&self, task: BertTask, labels: usize) -> Option<Self> {
        let labels = if self.labels().len() == labels {
            self.labels().to_vec()
        } else {
            (0..labels).map(|at| format!("LABEL_{at}")).collect()
        };
        match self {
            Self::Bert(config) if config.family != BertFamily::Dpr && self.is_tunable() => {
                Some(Self::Bert(BertConfig { task, labels, ..config.clone() }))
            }
            Self::ModernBert(config) => {
                Some(Self::ModernBert(ModernBertConfig { task, labels, ..config.clone() }))
            }
            Self::Llama(config) => {
                let head = config.head.with_task(config.kind.encoder_classes()?, task, labels)?;
                Some(Self::Llama(LlamaConfig { head, ..config.clone() }))
            }
            _ => None,
        }
    }

    /// The same with other names of the labels, of which there must be as many.
    #[must_use]
    pub fn with_labels(&self, names: Vec<String>) -> Self {
        let mut config = self.clone();
        match &mut config {
            Self::Bert(config) => config.labels = names,
            Self::ModernBert(config) => config.labels = names,
            Self::BartClassifier(config) => config.labels = names,
            Self::Gpt2(config) => config.head.rename(names),
            Self::Llama(config) => config.head.rename(names),
            Self::T5(_) | Self::T5Encoder(_) | Self::Bart(_) | Self::StaticEmbedding(_) => {}
        }
        config
    }

    /// The most tokens of an encoder's input, special ones included.
    #[must_use]
    pub fn max_input_length(&self) -> usize {
        match self {
            Self::Bert(config) => config.max_input_length(),
            Self::ModernBert(config) => config.max_position_embeddings,
            Self::Llama(config) => config.max_position_embeddings,
            Self::Gpt2(config) => config.n_positions,
            Self::Bart(config) => config.most_input(),
            Self::BartClassifier(BartClassifierConfig { body, .. }) => {
                body.most_input().min(body.positions(true))
            }
            // Their distances have no end, and static embeddings have no positions.
            Self::T5(_) | Self::T5Encoder(_) | Self::StaticEmbedding(_) => usize::MAX,
        }
    }

    /// The width of the states.
    #[must_use]
    pub fn hidden_size(&self) -> usize {
        match self {
            Self::T5(config) => config.d_model,
            Self::T5Encoder(config) => config.sizes.d_model,
            Self::Bart(config) => config.d_model,
            Self::BartClassifier(config) => config.body.d_model,
            Self::Bert(config) => config.hidden_size,
            Self::ModernBert(config) => config.hidden_size,
            Self::Gpt2(config) => config.n_embd,
            Self::Llama(config) => config.embedding_width(),
            Self::StaticEmbedding(config) => config.hidden_dim,
        }
    }

    /// The number of token types that have an embedding.
    #[must_use]
    pub fn token_types(&self) -> usize {
        match self {
            Self::Bert(config) if config.has_types() => config.type_vocab_size,
            _ => 0,
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
            Self::BartClassifier(config) => config.body.vocab_size,
            Self::Bert(config) => config.vocab_size,
            Self::ModernBert(config) => config.vocab_size,
            Self::Gpt2(config) => config.vocab_size,
            Self::Llama(config) => config.vocab_size,
            Self::StaticEmbedding(config) => config.vocab_size,
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

impl From<&BertConfig> for ModelConfig {
    fn from(config: &BertConfig) -> Self {
        Self::Bert(config.clone())
    }
}

impl From<&Self> for ModelConfig {
    fn from(config: &Self) -> Self {
        config.clone()
    }
}

impl AsRef<dyn Architecture> for ModelConfig {
    fn as_ref(&self) -> &(dyn Architecture + 'static) {
        self.architecture()
    }
}
