//! A model folder as Hugging Face lays it out, and the models that are built from it.

use std::{collections::BTreeMap, path::Path};

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use sporran_checkpoint::{
    Adapter, Error, ModelKind, Parameter, Part, Result, SpecialTokens, StoredModel, TokenFields, Tokenizer,
    json::{self, parse},
};

use crate::{
    architectures::{
        ModelConfig,
        bart::classifier,
        bert::{BertModel, EncoderModel, Head},
        decoder::{DecoderEncoder, DecoderHead},
        gpt2::Gpt2,
        llama::Llama,
        modernbert::{self, ModernBert},
        static_embedding::{StaticConfig, StaticEmbedding},
        t5::T5Encoder,
    },
    causal::{CausalLm, TrainableCausal},
    decode::GenerationOptions,
    device::{DeviceName, Precision},
    packed::{PackedDecoder, PackedEncoder, PackedLlama, PackedModernBert, PackedSeq2Seq, PackedT5Encoder},
    seq2seq::{Seq2Seq, Trainable},
};

pub(crate) const CONFIG: &str = "config.json";
const GENERATION_CONFIG: &str = "generation_config.json";

/// A model folder, with its JSON files read and its weights mapped and checked.
///
/// ```
/// use std::path::Path;
///
/// use candle_core::{DType, Device};
/// use sporran_transformers::{Batch, Cache, Checkpoint, Seq2Seq};
///
/// // A T5 with random weights: hidden states of 24 values.
/// let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/t5-relu");
/// let checkpoint = Checkpoint::open(&folder)?;
/// assert_eq!(checkpoint.architectures(), ["T5ForConditionalGeneration"]);
///
/// let model = checkpoint.model(DType::F32, &Device::Cpu)?;
/// let batch = Batch::new(&[[5u32, 9, 30, 1]], 0, &Device::Cpu)?;
/// let memory = model.encode(&batch)?;
/// assert_eq!(memory.hidden().dims(), [1, 4, 24]);
///
/// // The logits of the token after the start token, 0.
/// let logits = model.decode(&[0], 1, &memory, &mut Cache::new())?;
/// assert_eq!(logits.len(), model.vocab_size());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint {
    stored: StoredModel,
    architectures: Vec<String>,
    config: ModelConfig,
    tokens: Option<SpecialTokens>,
    generation: GenerationOptions,
}

/// The special tokens and the generation options that a folder's JSON files set; `text` is that of its `config.json`.
pub(crate) fn generation_files(
    folder: &Path,
    (path, text): (&Path, &str),
    defaults: &GenerationOptions,
) -> Result<(TokenFields, GenerationOptions)> {
    let fields: TokenFields = parse(path, text)?;
    let generation_path = folder.join(GENERATION_CONFIG);
    Ok(match json::text(&generation_path)? {
        Some(text) => (
            parse::<TokenFields>(&generation_path, &text)?.over(fields),
            GenerationOptions::from_folder(&generation_path, &text)?,
        ),
        None => {
            let own = GenerationOptions::from_folder(path, text)?;
            (fields, own.or(defaults))
        }
    })
}

impl Checkpoint {
    /// Reads the JSON files and the positions of the weights, and checks that every tensor that the config requires is
    /// there with its shape. A tensor that the model does not use is logged as a warning and listed by
    /// [`surplus`](Self::surplus). The weights are those of the first of `model.safetensors`,
    /// `model.safetensors.index.json`, `pytorch_model.bin` and `pytorch_model.bin.index.json` that is there. No code
    /// in a PyTorch file is run.
    ///
    /// An adapter of LoRA without a `config.json` is opened as its base model with the adapter merged into it. The base model
    /// is a folder that `base_model_name_or_path` names, from here or from the adapter's folder, or an imported model.
    ///
    /// A head that the config ties to the embeddings, but that the weights hold with other values, is kept apart,
    /// as in `transformers`.
    ///
    /// # Errors
    /// A variant for each way in which a folder can be wrong: [`Error::MissingFile`], [`Error::MissingShard`],
    /// [`Error::Pointer`], [`Error::Adapter`], [`Error::MissingBase`], [`Error::Json`],
    /// [`Error::Config`], [`Error::Truncated`], [`Error::Safetensors`], [`Error::Archive`], [`Error::Pytorch`],
    /// [`Error::Pickle`], [`Error::MissingTensor`], [`Error::TensorShape`], [`Error::TensorDtype`], and
    /// [`Error::Io`].
    pub fn open(folder: &Path) -> Result<Self> {
        Self::open_as(folder, None)
    }

    /// Opens one of the two models of a folder, as [`open`](Self::open) opens a single model.
    ///
    /// # Errors
    /// As for `open`, and [`Error::Architecture`] where the folder's config is not that of a model with such a part.
    pub fn open_part(folder: &Path, part: Part) -> Result<Self> {
        Self::open_as(folder, Some(part))
    }

    fn open_as(folder: &Path, part: Option<Part>) -> Result<Self> {
        let missing = || Error::MissingFile { folder: folder.into(), expected: CONFIG };
        // The files that an adapter has from its base model.
        let mut base = folder.to_owned();
        let text = if Adapter::is_alone_in(folder) {
            let adapter = Adapter::open(folder)?;
            base = adapter.local_base()?;
            adapter.model_config(&base)?
        } else {
            let own = json::text(&folder.join(CONFIG))?;
            let of_table = StaticConfig::text(folder, own.as_deref())?;
            of_table.or(own).ok_or_else(missing)?
        };
        let config_path = base.join(CONFIG);
        let text = match part {
            Some(part) => part.config(&config_path, &text)?,
            None => text,
        };
        let mut config = ModelConfig::from_json(&config_path, &text)?;
        let kind: ModelKind = parse(&config_path, &text)?;
        // An encoder does not generate, so generation settings in its files are ignored.
        let (tokens, generation) = match config.architecture().default_tokens() {
            None => (None, GenerationOptions::default()),
            Some(defaults) => {
                let own = config.generation_defaults();
                let (tokens, generation) = generation_files(&base, (&config_path, &text), &own)?;
                (Some(tokens.or(defaults).resolve(config.vocab_size(), &config_path)?), generation)
            }
        };
        let stored = StoredModel::open(folder, part, config.architecture_mut())?;
        Ok(Self { stored, architectures: kind.architectures.unwrap_or_default(), config, tokens, generation })
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.stored.folder()
    }

    /// The model's config.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The classes of `transformers` that the config names.
    #[must_use]
    pub fn architectures(&self) -> &[String] {
        &self.architectures
    }

    /// The special tokens of the folder.
    ///
    /// # Errors
    /// [`Error::Architecture`] where the model does not generate.
    pub fn special_tokens(&self) -> Result<&SpecialTokens> {
        self.tokens.as_ref().ok_or_else(|| self.other_kind("a model that generates"))
    }

    /// The generation options that the folder sets.
    #[must_use]
    pub fn generation_defaults(&self) -> &GenerationOptions {
        &self.generation
    }

    /// The folder's tokenizer, as [`Tokenizer::from_folder`] reads it. Each token needs a row in the embedding table; special
    /// tokens without one are logged as a warning.
    ///
    /// # Errors
    /// [`Error::MissingFile`], [`Error::Pointer`], [`Error::Json`], [`Error::Config`], [`Error::Tokenizer`] or
    /// [`Error::TokenBeyondRows`].
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        self.stored.tokenizer()
    }

    /// The tensors that the model is built from, in the order of its definition.
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = &Parameter> {
        self.stored.parameters()
    }

    /// The tensors of the weights that the model does not use, as they are called there, in order.
    #[must_use]
    pub fn surplus(&self) -> &[String] {
        self.stored.surplus()
    }

    /// The number of elements of the stored tensors that the model uses, by their types.
    #[must_use]
    pub fn stored_types(&self) -> BTreeMap<String, usize> {
        self.stored.stored_types()
    }

    /// One tensor of the model, read, cast to `dtype` and put on `device`. The pages of its file are
    /// released, so reading many tensors needs no more memory than the tensors kept.
    ///
    /// # Errors
    /// [`Error::UnknownTensor`] where `name` is not one of [`parameters`](Self::parameters), or a tensor error.
    pub fn tensor(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        self.stored.tensor(name, dtype, device)
    }

    /// The weights, cast to `dtype` on `device`, to build a model from.
    ///
    /// # Errors
    /// A tensor error where `dtype` cannot be used or memory ends.
    pub fn var_builder(&self, dtype: DType, device: &Device) -> Result<VarBuilder<'static>> {
        self.stored.var_builder(dtype, device)
    }

    /// The encoder-decoder over candle, with its weights cast to `dtype` on `device`.
    ///
    /// # Errors
    /// [`Error::Architecture`] for another kind of model, or a tensor error where `dtype` cannot be used or memory
    /// ends.
    pub fn model(&self, dtype: DType, device: &Device) -> Result<Box<dyn Trainable>> {
        if self.config.is_causal() {
            return Err(self.other_kind("an encoder-decoder"));
        }
        let tokens = self.special_tokens()?.clone();
        self.config.build(&self.var_builder(dtype, device)?, tokens, self.generation.clone())
    }

    /// The encoder-decoder for inference on a device: packed on a CPU, over candle on a GPU.
    ///
    /// # Errors
    /// As for [`model`](Self::model), and those of [`DeviceName::check`] and [`DeviceName::open`].
    pub fn seq2seq(&self, device: DeviceName, precision: Precision) -> Result<Box<dyn Seq2Seq>> {
        device.check(precision)?;
        match device {
            DeviceName::Cpu => Ok(Box::new(self.fast(precision)?)),
            DeviceName::Cuda(_) => Ok(self.model(precision.dtype()?, &device.open()?)?),
        }
    }

    /// The encoder for inference on a device, with its head: packed on a CPU, over candle on a GPU.
    ///
    /// # Errors
    /// As for [`seq2seq`](Self::seq2seq).
    pub fn encoder_on(&self, device: DeviceName, precision: Precision) -> Result<EncoderModel> {
        device.check(precision)?;
        match device {
            DeviceName::Cpu => self.fast_encoder(precision),
            DeviceName::Cuda(_) => self.encoder(precision.dtype()?, &device.open()?),
        }
    }

    /// The encoder-decoder for inference on a CPU, with its weights packed in `precision`: in f32 they stay in
    /// the type of their file. Only one unpacked tensor at a time is in memory.
    ///
    /// # Errors
    /// As for [`model`](Self::model).
    pub fn fast(&self, precision: Precision) -> Result<PackedSeq2Seq> {
        let precision = precision.packed()?;
        let (tokens, generation) = (self.special_tokens()?.clone(), self.generation.clone());
        let read = &mut |name: &str| Ok(self.stored.raw(name)?.into());
        match &self.config {
            ModelConfig::T5(config) => PackedSeq2Seq::t5(config, tokens, generation, precision, read),
            ModelConfig::Bart(config) => PackedSeq2Seq::bart(config, tokens, generation, precision, read),
            _ => Err(self.other_kind("an encoder-decoder")),
        }
    }

    /// The encoder for inference on a CPU, with its head and with its body's weights packed in `precision`.
    ///
    /// # Errors
    /// As for [`model`](Self::model).
    pub fn fast_encoder(&self, precision: Precision) -> Result<EncoderModel> {
        let vb = self.stored.one_by_one();
        let table = |name: &str| self.tensor(name, DType::F32, &Device::Cpu);
        let read = &mut |name: &str| Ok(self.stored.raw(name)?.into());
        Ok(match &self.config {
            // It has no packed form.
            ModelConfig::Bert(config) if config.is_apart() => {
                return self.encoder(precision.dtype()?, &Device::Cpu);
            }
            ModelConfig::Bert(config) => {
                let head = Head::new(config, || table(&config.table()), &vb)?;
                EncoderModel { body: Box::new(PackedEncoder::bert(config, precision.packed()?, read)?), head }
            }
            ModelConfig::ModernBert(config) => {
                let head = modernbert::head(config, || table(&config.table()), &vb)?;
                let body = PackedModernBert::new(config, precision.packed()?, read)?;
                EncoderModel { body: Box::new(body), head }
            }
            ModelConfig::T5Encoder(config) => {
                let body = PackedT5Encoder::new(config, precision.packed()?, read)?;
                EncoderModel { body: Box::new(body), head: Head::States }
            }
            ModelConfig::Llama(config) => {
                let head = config.encoder_head(&vb)?;
                let body = PackedDecoder::new(config, precision.packed()?, read)?;
                EncoderModel { body: Box::new(body), head }
            }
            // They have no packed form.
            ModelConfig::Gpt2(_) | ModelConfig::BartClassifier(_) | ModelConfig::StaticEmbedding(_) => {
                return self.encoder(precision.dtype()?, &Device::Cpu);
            }
            _ => return Err(self.other_kind("an encoder")),
        })
    }

    /// The encoder for inference, with its head and with its weights cast to `dtype` on `device`.
    ///
    /// # Errors
    /// As for [`model`](Self::model).
    pub fn encoder(&self, dtype: DType, device: &Device) -> Result<EncoderModel> {
        match &self.config {
            ModelConfig::Bert(config) if config.is_apart() => {
                EncoderModel::apart(config, &self.var_builder(dtype, device)?)
            }
            ModelConfig::Bert(config) => {
                Ok(BertModel::new(config, &self.var_builder(dtype, device)?)?.into())
            }
            ModelConfig::ModernBert(config) => {
                let vb = self.var_builder(dtype, device)?;
                let body = ModernBert::new(config, &vb)?;
                let head = modernbert::head(config, || Ok(body.table().clone()), &vb)?;
                Ok(EncoderModel { body: Box::new(body), head })
            }
            ModelConfig::T5Encoder(config) => {
                let body = T5Encoder::new(config, &self.var_builder(dtype, device)?)?;
                Ok(EncoderModel { body: Box::new(body), head: Head::States })
            }
            ModelConfig::Llama(config) => {
                let vb = self.var_builder(dtype, device)?;
                let (body, head) = (Llama::new(config, &vb)?, config.encoder_head(&vb)?);
                Ok(EncoderModel { body: Box::new(DecoderEncoder::new(body, config.embedding_width())), head })
            }
            ModelConfig::Gpt2(config) => {
                let vb = self.var_builder(dtype, device)?;
                let (body, head) = (Gpt2::new(config, &vb)?, config.encoder_head(&vb)?);
                Ok(EncoderModel { body: Box::new(DecoderEncoder::new(body, config.n_embd)), head })
            }
            ModelConfig::BartClassifier(config) => classifier(config, &self.var_builder(dtype, device)?),
            ModelConfig::StaticEmbedding(config) => {
                let body = StaticEmbedding::new(config, &self.stored, dtype, device)?;
                Ok(EncoderModel { body: Box::new(body), head: Head::States })
            }
            _ => Err(self.other_kind("an encoder")),
        }
    }

    /// The decoder-only model over candle, with its weights cast to `dtype` on `device`.
    ///
    /// # Errors
    /// As for [`model`](Self::model).
    pub fn causal_model(&self, dtype: DType, device: &Device) -> Result<Box<dyn TrainableCausal>> {
        self.check_words()?;
        let tokens = self.special_tokens()?.clone();
        self.config.build_causal(&self.var_builder(dtype, device)?, tokens, self.generation.clone())
    }

    /// The decoder-only model for inference on a device: LLaMA's shape packed on a CPU, everything else over candle.
    ///
    /// # Errors
    /// As for [`model`](Self::model), and those of [`DeviceName::check`] and [`DeviceName::open`]; [`Error::Options`]
    /// for `int8` where the model is not packed.
    pub fn causal(&self, device: DeviceName, precision: Precision) -> Result<Box<dyn CausalLm>> {
        device.check(precision)?;
        self.check_words()?;
        match (&self.config, device) {
            (ModelConfig::Llama(config), DeviceName::Cpu) => {
                let (tokens, generation) = (self.special_tokens()?.clone(), self.generation.clone());
                let precision = precision.packed()?;
                Ok(Box::new(PackedLlama::llama(config, tokens, generation, precision, &mut |name| {
                    Ok(self.stored.raw(name)?.into())
                })?))
            }
            _ => Ok(self.causal_model(precision.dtype()?, &device.open()?)?),
        }
    }

    /// The weights as trainable variables, to train them further.
    ///
    /// # Errors
    /// As for [`model`](Self::model).
    pub fn var_map(&self, dtype: DType, device: &Device) -> Result<VarMap> {
        self.stored.var_map(dtype, device)
    }

    /// The folder's weights, with the place of each parameter of the model.
    #[must_use]
    pub fn stored(&self) -> &StoredModel {
        &self.stored
    }

    /// Checks that the model continues texts.
    fn check_words(&self) -> Result<()> {
        match self.config.decoder_head() {
            Some(DecoderHead::LanguageModel) => Ok(()),
            _ => Err(self.other_kind("a decoder-only model")),
        }
    }

    fn other_kind(&self, expected: &'static str) -> Error {
        let is_bidirectional =
            matches!(&self.config, ModelConfig::Llama(config) if config.is_bidirectional());
        let what = match self.config.decoder_head() {
            Some(DecoderHead::None) if is_bidirectional => ", whose tokens see those after them",
            Some(DecoderHead::None) => ", whose weights lack the head `lm_head.weight`",
            Some(DecoderHead::Labels(_) | DecoderHead::PooledLabels(..)) => {
                " with a head for sequence classification"
            }
            Some(DecoderHead::TokenLabels(_)) => " with a head for token classification",
            _ => "",
        };
        let found = format!("`{}`{what}", self.config.architecture().model_type());
        Error::Architecture { path: self.stored.folder().join(CONFIG), expected, found }
    }
}

/// Writes a checked checkpoint into `to`, as [`sporran_checkpoint::import`] does.
///
/// # Errors
/// Those of [`sporran_checkpoint::import`].
pub fn import(checkpoint: &Checkpoint, to: &Path) -> Result<()> {
    sporran_checkpoint::import(&checkpoint.stored, to)
}

/// Writes one of the two models of a folder into `to` as a single model, as [`import`] does. Only its own config is copied.
///
/// # Errors
/// Those of [`Checkpoint::open_part`] and of [`import`].
pub fn import_part(folder: &Path, part: Part, to: &Path) -> Result<Checkpoint> {
    let checkpoint = Checkpoint::open_part(folder, part)?;
    import(&checkpoint, to)?;
    Ok(checkpoint)
}

/// Writes a memory network that ParlAI saved as a BART's folder, as [`sporran_checkpoint::import_parlai`] does.
///
/// # Errors
/// Those of [`sporran_checkpoint::import_parlai`].
pub fn import_parlai(folder: &Path, to: &Path) -> Result<()> {
    sporran_checkpoint::import_parlai(folder, to, |fields| {
        Ok(ModelConfig::Bart(parse(&folder.join("model.opt"), &fields.to_string())?))
    })
}
