//! Initial encoder-decoders for training.

use std::{path::Path, sync::Arc};

use candle_core::Device;
use sporran_checkpoint::{Error, Result, SpecialTokens, Tokenizer};
use sporran_transformers::{Checkpoint, GenerationOptions, ModelConfig, T5Config, Trainable};

use super::{options::ShapeOptions, variables_of};
use crate::{Variables, VocabularyOptions, tokenizer_files, train_vocabulary, wire_copying};

/// An encoder-decoder in training.
pub struct TrainableModel {
    /// The model, a function of `variables`.
    pub model: Arc<dyn Trainable>,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its weights.
    pub variables: Variables,
    /// The names and contents of the other files of the model.
    pub extra_files: Vec<(String, Vec<u8>)>,
}

/// A model before training: its config, weights and tokenizer.
pub struct InitialModel {
    config: ModelConfig,
    tokens: SpecialTokens,
    tokenizer: Tokenizer,
    variables: Variables,
    /// The tokenizer's files.
    extra_files: Vec<(String, Vec<u8>)>,
    /// Whether the weights are random.
    is_fresh: bool,
}

impl InitialModel {
    /// The model and the tokenizer of a folder.
    ///
    /// # Errors
    /// Errors of the folder.
    pub fn of_folder(from: &Path, seed: u64) -> Result<Self> {
        let checkpoint = Checkpoint::open(from)?;
        let (tokens, tokenizer) = (checkpoint.special_tokens()?.clone(), checkpoint.tokenizer()?);
        Ok(Self {
            config: checkpoint.config().clone(),
            tokens,
            extra_files: vec![("tokenizer.json".to_owned(), tokenizer.json().as_bytes().to_vec())],
            tokenizer,
            variables: variables_of(&checkpoint, seed)?,
            is_fresh: false,
        })
    }

    /// A T5 with random weights. Its vocabulary is trained on `texts`; each of `marks` is one token.
    ///
    /// # Errors
    /// Errors of the tokenizer.
    pub fn fresh<S: AsRef<str> + Send + Sync>(
        shape: &ShapeOptions,
        texts: &[S],
        marks: &[&str],
        seed: u64,
    ) -> Result<Self> {
        let marks = marks.iter().map(|mark| (*mark).to_owned()).collect();
        let vocabulary = VocabularyOptions { size: shape.vocabulary, min_frequency: 2, marks };
        let extra_files = tokenizer_files(&train_vocabulary(texts.iter(), &vocabulary)?)?;
        let json = extra_files.iter().find(|(name, _)| name == "tokenizer.json");
        let json = json.map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
        let tokenizer = Tokenizer::from_json(Path::new("tokenizer.json"), json)?;
        let config = T5Config {
            vocab_size: tokenizer.vocab_size(),
            d_model: shape.d_model,
            d_kv: shape.d_kv,
            d_ff: shape.d_ff,
            num_layers: shape.encoder_layers,
            num_decoder_layers: Some(shape.decoder_layers),
            num_heads: shape.heads,
            dropout_rate: shape.dropout,
            ..T5Config::default()
        };
        Ok(Self {
            tokens: config.special_tokens(),
            config: ModelConfig::T5(config),
            tokenizer,
            variables: Variables::new(seed),
            extra_files,
            is_fresh: true,
        })
    }

    /// Builds the model on a device. `card` writes `model.toml`.
    ///
    /// # Errors
    /// Tensor errors.
    pub fn build(self, device: &Device, card: impl FnOnce(&Variables) -> String) -> Result<TrainableModel> {
        let Self { config, tokens, tokenizer, variables, mut extra_files, is_fresh } = self;
        let mut json = serde_json::to_vec_pretty(&config.to_json())
            .map_err(|error| Error::io(Path::new("config.json"), "write")(error.into()))?;
        json.push(b'\n');
        extra_files.push(("config.json".to_owned(), json));
        let vb = variables.builder(device);
        let model: Arc<dyn Trainable> = config.build(&vb, tokens, GenerationOptions::default())?.into();
        if let (true, ModelConfig::T5(config)) = (is_fresh, &config) {
            wire_copying(&variables, config)?;
        }
        extra_files.push(("model.toml".to_owned(), card(&variables).into_bytes()));
        Ok(TrainableModel { model, tokenizer, variables, extra_files })
    }
}
