//! Initial encoder-decoders and decoder-only models for training.

use std::{fs, path::Path, sync::Arc};

use candle_core::Device;
use candle_nn::VarBuilder;
use sporran_checkpoint::{Error, Result, SpecialTokens, Tokenizer};
use sporran_transformers::{
    Checkpoint, GenerationOptions, ModelConfig, T5Config, Trainable, TrainableCausal,
};

use super::{options::ShapeOptions, variables_of};
use crate::{Variables, VocabularyOptions, tokenizer_files, train_vocabulary, wire_copying};

/// A model in training, by default an encoder-decoder.
pub struct TrainableModel<M: ?Sized = dyn Trainable> {
    /// The model, a function of `variables`.
    pub model: Arc<M>,
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
    /// The generation options of the folder.
    generation: GenerationOptions,
    tokenizer: Tokenizer,
    variables: Variables,
    /// The tokenizer's files, and those of the folder that a trained model keeps.
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
        let mut extra_files = vec![("tokenizer.json".to_owned(), tokenizer.json().as_bytes().to_vec())];
        if checkpoint.config().is_causal() {
            extra_files.extend(kept_files(from)?);
        }
        Ok(Self {
            config: checkpoint.config().clone(),
            tokens,
            generation: checkpoint.generation_defaults().clone(),
            extra_files,
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
            generation: GenerationOptions::default(),
            config: ModelConfig::T5(config),
            tokenizer,
            variables: Variables::new(seed),
            extra_files,
            is_fresh: true,
        })
    }

    /// The same decoder-only model with more special tokens, whose embeddings are sampled from the seed.
    ///
    /// # Errors
    /// [`Error::Architecture`] for another kind of model; [`Error::Tokenizer`] for a blank token; tensor errors.
    pub fn with_added_tokens(mut self, tokens: &[String]) -> Result<Self> {
        if tokens.is_empty() {
            return Ok(self);
        }
        let tokenizer = self.tokenizer.with_added(tokens)?;
        let ids = tokens.iter().filter_map(|token| tokenizer.token_id(token));
        let needed = ids.max().map_or(0, |id| id as usize + 1);
        let (names, std) = match &mut self.config {
            ModelConfig::Gpt2(config) => {
                config.vocab_size = config.vocab_size.max(needed);
                (["transformer.wte.weight", "lm_head.weight"], config.initializer_range)
            }
            ModelConfig::Llama(config) => {
                config.vocab_size = config.vocab_size.max(needed);
                (["model.embed_tokens.weight", "lm_head.weight"], config.initializer_range)
            }
            other => {
                let found = format!("`{}`", other.model_type());
                let expected = "a decoder-only model";
                return Err(Error::Architecture { path: "config.json".into(), expected, found });
            }
        };
        let rows = self.config.vocab_size();
        let mut variables = self.variables;
        for name in names {
            variables = variables.with_rows(name, rows, std)?;
        }
        for (_, content) in self.extra_files.iter_mut().filter(|(name, _)| name == "tokenizer.json") {
            *content = tokenizer.json().as_bytes().to_vec();
        }
        Ok(Self { tokenizer, variables, ..self })
    }

    /// Builds the encoder-decoder on a device. `card` writes `model.toml`.
    ///
    /// # Errors
    /// [`Error::Architecture`] for another kind of model, and tensor errors.
    pub fn build(self, device: &Device, card: impl FnOnce(&Variables) -> String) -> Result<TrainableModel> {
        let (config, is_fresh) = (self.config.clone(), self.is_fresh);
        let built: TrainableModel = self.built(device, card, |vb, tokens| {
            Ok(config.build(vb, tokens, GenerationOptions::default())?.into())
        })?;
        if let (true, ModelConfig::T5(config)) = (is_fresh, &config) {
            wire_copying(&built.variables, config)?;
        }
        Ok(built)
    }

    /// Builds the decoder-only model on a device. `card` writes `model.toml`.
    ///
    /// # Errors
    /// As for [`build`](Self::build).
    pub fn build_causal(
        self,
        device: &Device,
        card: impl FnOnce(&Variables) -> String,
    ) -> Result<TrainableModel<dyn TrainableCausal>> {
        let (config, generation) = (self.config.clone(), self.generation.clone());
        self.built(device, card, |vb, tokens| Ok(config.build_causal(vb, tokens, generation)?.into()))
    }

    fn built<M: ?Sized>(
        self,
        device: &Device,
        card: impl FnOnce(&Variables) -> String,
        build: impl FnOnce(&VarBuilder, SpecialTokens) -> Result<Arc<M>>,
    ) -> Result<TrainableModel<M>> {
        let Self { config, tokens, tokenizer, variables, mut extra_files, .. } = self;
        let mut json = serde_json::to_vec_pretty(&config.to_json())
            .map_err(|error| Error::io(Path::new("config.json"), "write")(error.into()))?;
        json.push(b'\n');
        extra_files.push(("config.json".to_owned(), json));
        let model = build(&variables.builder(device), tokens)?;
        extra_files.push(("model.toml".to_owned(), card(&variables).into_bytes()));
        Ok(TrainableModel { model, tokenizer, variables, extra_files })
    }
}

/// Settings of a decoder-only model's folder that its trained model keeps, such as the chat template.
const KEPT: [&str; 5] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "chat_template.jinja",
];

fn kept_files(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let paths = KEPT.iter().map(|name| (*name, folder.join(name))).filter(|(_, path)| path.is_file());
    paths
        .map(|(name, path)| Ok((name.to_owned(), fs::read(&path).map_err(Error::io(&path, "read"))?)))
        .collect()
}
