//! The encoder-decoders that trainings start from.

use std::{path::Path, sync::Arc};

use candle_core::Device;
use sporran_checkpoint::{SpecialTokens, Tokenizer};
use sporran_training::{Variables, VocabularyOptions, tokenizer_files, train_vocabulary, wire_copying};
use sporran_transformers::{Checkpoint, GenerationOptions, ModelConfig, T5Config, Trainable};

use crate::{
    Error, Result,
    training::{options::ShapeOptions, session::variables_of},
};

/// An encoder-decoder in training.
pub(crate) struct Pupil {
    pub(crate) model: Arc<dyn Trainable>,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) variables: Variables,
    /// The files that go beside the weights.
    pub(crate) companions: Vec<(String, Vec<u8>)>,
}

/// What a training starts from.
pub(crate) struct Start {
    config: ModelConfig,
    tokens: SpecialTokens,
    tokenizer: Tokenizer,
    variables: Variables,
    /// The tokenizer's files.
    companions: Vec<(String, Vec<u8>)>,
    /// Whether the weights are drawn by chance.
    is_fresh: bool,
}

impl Start {
    /// A folder's model and tokenizer.
    pub(crate) fn of_folder(from: &Path, seed: u64) -> Result<Self> {
        let checkpoint = Checkpoint::open(from)?;
        let (tokens, tokenizer) = (checkpoint.special_tokens()?.clone(), checkpoint.tokenizer()?);
        Ok(Self {
            config: checkpoint.config().clone(),
            tokens,
            companions: vec![("tokenizer.json".to_owned(), tokenizer.json().as_bytes().to_vec())],
            tokenizer,
            variables: variables_of(&checkpoint, seed)?,
            is_fresh: false,
        })
    }

    /// A T5 of some shape with random weights, whose vocabulary is learned from texts; each of `marks` is one token.
    pub(crate) fn fresh<S: AsRef<str> + Send + Sync>(
        shape: &ShapeOptions,
        texts: &[S],
        marks: &[&str],
        seed: u64,
    ) -> Result<Self> {
        let marks = marks.iter().map(|mark| (*mark).to_owned()).collect();
        let vocabulary = VocabularyOptions { size: shape.vocabulary, min_frequency: 2, marks };
        let companions = tokenizer_files(&train_vocabulary(texts.iter(), &vocabulary)?)?;
        let json = companions.iter().find(|(name, _)| name == "tokenizer.json");
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
            companions,
            is_fresh: true,
        })
    }

    /// The model on a device; `card` says what it is and where it comes from.
    pub(crate) fn pupil(self, device: &Device, card: impl FnOnce(&Variables) -> String) -> Result<Pupil> {
        let Self { config, tokens, tokenizer, variables, mut companions, is_fresh } = self;
        let mut json = serde_json::to_vec_pretty(&config.to_json())
            .map_err(|error| Error::io(Path::new("config.json"), "write")(error.into()))?;
        json.push(b'\n');
        companions.push(("config.json".to_owned(), json));
        let vb = variables.builder(device);
        let model: Arc<dyn Trainable> = config.build(&vb, tokens, GenerationOptions::default())?.into();
        if let (true, ModelConfig::T5(config)) = (is_fresh, &config) {
            wire_copying(&variables, config)?;
        }
        companions.push(("model.toml".to_owned(), card(&variables).into_bytes()));
        Ok(Pupil { model, tokenizer, variables, companions })
    }
}
