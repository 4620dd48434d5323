//! A model folder as Hugging Face lays it out: `config.json`, `generation_config.json`, the weights as safetensors
//! or as PyTorch's `.bin`, in one file or in shards with an index, and the tokenizer's files.

mod file;
mod loose;
mod part;
mod pickle;
mod pytorch;
mod stored;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::{Init, VarBuilder, VarMap, var_builder::SimpleBackend};
use safetensors::Dtype;

use crate::{
    architecture::Architecture,
    bert_config::BertConfig,
    bert_heads::Head,
    causal::CausalLm,
    decode::GenerationOptions,
    device::{DeviceName, Precision},
    encoder::{BertModel, EncoderModel},
    engine::{FastEncoder, FastLlama, FastSeq2Seq},
    error::{Error, Result},
    json::{self, parse},
    model_config::{Kind, ModelConfig},
    seq2seq::{Seq2Seq, Trainable},
    tokenizer::Tokenizer,
    tokens::{SpecialTokens, TokenFields},
    weights::{self, Parameter},
};
use file::WeightFile;
pub use loose::weight_types;
pub(crate) use loose::{tensors, tensors_of, tensors_under};
pub(crate) use part::BLINK_MARKS;
pub use part::Part;
use stored::{Place, Stored};

const CONFIG: &str = "config.json";
const GENERATION_CONFIG: &str = "generation_config.json";

/// A model folder, with its JSON files read and its weights mapped and checked.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    part: Option<Part>,
    architectures: Vec<String>,
    config: ModelConfig,
    tokens: Option<SpecialTokens>,
    generation: GenerationOptions,
    files: Vec<WeightFile>,
    /// The weights file, or the index of its shards.
    index: PathBuf,
    places: Vec<Place>,
    /// The places by the names of their parameters.
    by_name: BTreeMap<String, usize>,
    surplus: Vec<String>,
}

/// The special tokens and the generation options that a folder's JSON files set; `text` is that of its `config.json`.
fn generation_files(
    folder: &Path,
    (path, text): (&Path, &str),
    config: &ModelConfig,
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
            (fields, own.or(&config.architecture().generation_defaults()))
        }
    })
}

impl Checkpoint {
    /// Reads the JSON files and where the weights lie, and checks that every tensor that the config asks for is
    /// there with its shape. A tensor that the model does not use is logged as a warning and listed by
    /// [`surplus`](Self::surplus). The weights are those of the first of `model.safetensors`,
    /// `model.safetensors.index.json`, `pytorch_model.bin` and `pytorch_model.bin.index.json` that is there. No code
    /// in a PyTorch file is run.
    ///
    /// A head that the config ties to the embeddings, but that the weights hold with other values, is kept apart,
    /// as in `transformers`.
    ///
    /// # Errors
    /// A variant for each way in which a folder can be wrong: [`Error::MissingFile`], [`Error::Json`],
    /// [`Error::Config`], [`Error::Truncated`], [`Error::Safetensors`], [`Error::Archive`], [`Error::Pytorch`],
    /// [`Error::Pickle`], [`Error::MissingTensor`], [`Error::TensorShape`], [`Error::TensorDtype`], and
    /// [`Error::Io`].
    pub fn open(folder: &Path) -> Result<Self> {
        Self::open_as(folder, None)
    }

    /// Opens one of the two models of a folder, as [`open`](Self::open) opens a model of its own.
    ///
    /// # Errors
    /// As for `open`, and [`Error::Architecture`] where the folder's config is not that of a model with such a part.
    pub fn open_part(folder: &Path, part: Part) -> Result<Self> {
        Self::open_as(folder, Some(part))
    }

    fn open_as(folder: &Path, part: Option<Part>) -> Result<Self> {
        let config_path = folder.join(CONFIG);
        let text = json::text(&config_path)?
            .ok_or_else(|| Error::MissingFile { folder: folder.into(), expected: CONFIG })?;
        let text = match part {
            Some(part) => part.config(&config_path, &text)?,
            None => text,
        };
        let mut config = ModelConfig::from_json(&config_path, &text)?;
        let kind: Kind = parse(&config_path, &text)?;
        // An encoder generates nothing, whatever its files say of tokens and generation.
        let (tokens, generation) = match config.architecture().default_tokens() {
            None => (None, GenerationOptions::default()),
            Some(defaults) => {
                let (tokens, generation) = generation_files(folder, (&config_path, &text), &config)?;
                (Some(tokens.or(defaults).resolve(config.vocab_size(), &config_path)?), generation)
            }
        };
        let (files, index) = stored::open_weights(folder)?;
        let tensors = files.iter().map(|file| file.tensors().len()).sum();
        config.architecture().check_layers(tensors).map_err(|error| error.within(&config_path))?;
        let mut stored = Stored::of(&files, config.architecture(), part);
        if stored.unify_embeddings(config.architecture())?
            && let Some(untied) = config.architecture().untied()
        {
            config = untied;
        }
        let places = stored.locate(config.architecture(), &index)?;
        let surplus = stored.surplus(config.architecture());
        let names = places.iter().map(|place| place.parameter.name.clone());
        let by_name = names.enumerate().map(|(at, name)| (name, at)).collect();
        let (folder, architectures) = (folder.into(), kind.architectures.unwrap_or_default());
        Ok(Self {
            folder,
            part,
            architectures,
            config,
            tokens,
            generation,
            files,
            index,
            places,
            by_name,
            surplus,
        })
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
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

    /// The folder's tokenizer, from `tokenizer.json`, from `vocab.txt` (WordPiece, as BERT has it), or from
    /// `vocab.json` and `merges.txt` (byte-level BPE, as GPT-2, RoBERTa and BART have it).
    ///
    /// # Errors
    /// [`Error::MissingFile`], [`Error::Json`], [`Error::Config`] or [`Error::Tokenizer`].
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        match self.part {
            Some(part) => part.tokenizer(Tokenizer::from_folder(&part.tokenizer_folder(&self.folder))?),
            None => Tokenizer::from_folder(&self.folder),
        }
    }

    /// The tensors that the model is built from, in the order of its definition.
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = &Parameter> {
        self.places.iter().map(|place| &place.parameter)
    }

    /// The tensors of the weights that the model does not use, as they are called there, in order.
    #[must_use]
    pub fn surplus(&self) -> &[String] {
        &self.surplus
    }

    /// The number of elements of the stored tensors that the model uses, by their types.
    #[must_use]
    pub fn stored_types(&self) -> BTreeMap<String, usize> {
        let mut types = BTreeMap::new();
        for (_, dtype, shape, _) in self.raw_tensors() {
            *types.entry(loose::type_name(dtype)).or_default() += shape.iter().product::<usize>();
        }
        types
    }

    /// The stored tensors that the model uses, by the model's own names: their types, shapes and elements.
    pub(crate) fn raw_tensors(&self) -> impl Iterator<Item = (&str, Dtype, &[usize], Cow<'_, [u8]>)> {
        self.places.iter().filter_map(|place| {
            let (file, tensor) = place.stored?;
            let file = &self.files[file];
            let tensor = &file.tensors()[tensor];
            Some((place.parameter.name.as_str(), tensor.dtype, tensor.shape.as_slice(), file.bytes(tensor)))
        })
    }

    /// One tensor of the model, read, cast to `dtype` and put on `device`. The pages of the file that it came from
    /// are let go, so that reading tensor after tensor needs no more memory than what is kept of them.
    ///
    /// # Errors
    /// [`Error::UnknownTensor`] where `name` is not one of [`parameters`](Self::parameters), or a tensor error.
    pub fn tensor(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        match self.by_name.get(name) {
            Some(&at) => self.read(&self.places[at], dtype, device),
            None => Err(Error::UnknownTensor { path: self.index.clone(), tensor: name.into() }),
        }
    }

    fn read(&self, place: &Place, dtype: DType, device: &Device) -> Result<Tensor> {
        match place.stored {
            Some((file, tensor)) => {
                let file = &self.files[file];
                file.read(&file.tensors()[tensor], dtype, device)
            }
            None => Ok(weights::fresh(&place.parameter, 0, 0, device)?.to_dtype(dtype)?),
        }
    }

    /// The weights, cast to `dtype` on `device`, to build a model from.
    ///
    /// # Errors
    /// A tensor error where `dtype` cannot be used or memory ends.
    pub fn var_builder(&self, dtype: DType, device: &Device) -> Result<VarBuilder<'static>> {
        let load = |place: &Place| Ok((place.parameter.name.clone(), self.read(place, dtype, device)?));
        let tensors = self.places.iter().map(load).collect::<Result<_>>()?;
        Ok(VarBuilder::from_tensors(tensors, dtype, device))
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

    /// The encoder-decoder for inference on a CPU, with its weights packed in `precision`. One tensor at a time is in
    /// memory beside what is packed.
    ///
    /// # Errors
    /// As for [`model`](Self::model).
    pub fn fast(&self, precision: Precision) -> Result<FastSeq2Seq> {
        let precision = precision.packed()?;
        let (tokens, generation) = (self.special_tokens()?.clone(), self.generation.clone());
        let read = &mut |name: &str| self.values(name);
        match &self.config {
            ModelConfig::T5(config) => FastSeq2Seq::t5(config, tokens, generation, precision, read),
            ModelConfig::Bart(config) => FastSeq2Seq::bart(config, tokens, generation, precision, read),
            _ => Err(self.other_kind("an encoder-decoder")),
        }
    }

    /// One tensor's values in f32, row after row.
    fn values(&self, name: &str) -> Result<Vec<f32>> {
        Ok(self.tensor(name, DType::F32, &Device::Cpu)?.flatten_all()?.to_vec1()?)
    }

    /// The encoder for inference on a CPU, with its head and with its body's weights packed in `precision`.
    ///
    /// # Errors
    /// As for [`model`](Self::model).
    pub fn fast_encoder(&self, precision: Precision) -> Result<EncoderModel> {
        let ModelConfig::Bert(config) = &self.config else {
            return Err(self.other_kind("an encoder (BERT, RoBERTa, DistilBERT or DPR)"));
        };
        let vb = VarBuilder::from_backend(Box::new(OneByOne(self)), DType::F32, Device::Cpu);
        let head = Head::new(config, || self.tensor(&config.table(), DType::F32, &Device::Cpu), &vb)?;
        let body = FastEncoder::bert(config, precision.packed()?, &mut |name: &str| self.values(name))?;
        Ok(EncoderModel { body: Box::new(body), head })
    }

    /// The encoder for inference, with its head and with its weights cast to `dtype` on `device`.
    ///
    /// # Errors
    /// As for [`model`](Self::model).
    pub fn encoder(&self, dtype: DType, device: &Device) -> Result<EncoderModel> {
        match &self.config {
            ModelConfig::Bert(config) => {
                Ok(BertModel::new(config, &self.var_builder(dtype, device)?)?.into())
            }
            _ => Err(self.other_kind("an encoder (BERT, RoBERTa, DistilBERT or DPR)")),
        }
    }

    /// The decoder-only model for inference, with its weights cast to `dtype` on `device`.
    ///
    /// # Errors
    /// As for [`model`](Self::model).
    pub fn causal_model(&self, dtype: DType, device: &Device) -> Result<Box<dyn CausalLm>> {
        if !self.config.is_causal() {
            return Err(self.other_kind("a decoder-only model"));
        }
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
        match (&self.config, device) {
            (ModelConfig::Llama(config), DeviceName::Cpu) => {
                let (tokens, generation) = (self.special_tokens()?.clone(), self.generation.clone());
                let precision = precision.packed()?;
                Ok(Box::new(FastLlama::llama(config, tokens, generation, precision, &mut |name| {
                    self.values(name)
                })?))
            }
            _ => self.causal_model(precision.dtype()?, &device.open()?),
        }
    }

    /// The weights as trainable variables, to train them further.
    ///
    /// # Errors
    /// As for [`model`](Self::model).
    pub fn var_map(&self, dtype: DType, device: &Device) -> Result<VarMap> {
        let map = VarMap::new();
        for place in &self.places {
            weights::insert(&map, &place.parameter.name, &self.read(place, dtype, device)?)?;
        }
        Ok(map)
    }

    /// The stored tensors that a model of `config` can start from, by its names, in f32: another head than the folder's
    /// own is not among them, nor is one of another shape. Where the weights do not tie what the config ties, the config
    /// is changed.
    pub(crate) fn tensors_for(&self, config: &mut BertConfig) -> Result<BTreeMap<String, Tensor>> {
        let mut stored = Stored::of(&self.files, config, None);
        if stored.unify_embeddings(config)? {
            config.tie_word_embeddings = false;
        }
        let mut tensors = BTreeMap::new();
        for parameter in config.parameters()? {
            let Some((file, tensor)) = stored.take(&parameter.name) else { continue };
            let tensor = &self.files[file].tensors()[tensor];
            if tensor.shape == parameter.shape.dims() {
                tensors.insert(parameter.name, self.files[file].read(tensor, DType::F32, &Device::Cpu)?);
            } else {
                tracing::warn!(
                    tensor = tensor.name,
                    "has another shape than the model to train; it is drawn anew"
                );
            }
        }
        Ok(tensors)
    }

    fn other_kind(&self, expected: &'static str) -> Error {
        let found = format!("`{}`", self.config.architecture().model_type());
        Error::Architecture { path: self.folder.join(CONFIG), expected, found }
    }
}

/// Reads each tensor when it is asked for, so that a head can be built without its body.
struct OneByOne<'a>(&'a Checkpoint);

impl SimpleBackend for OneByOne<'_> {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        _: Init,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        let tensor = self.0.tensor(name, dtype, device).map_err(candle_core::Error::wrap)?;
        if tensor.shape() != &shape {
            candle_core::bail!("{name}: expected shape {shape:?}, found {:?}", tensor.shape());
        }
        Ok(tensor)
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
        self.0.tensor(name, dtype, device).map_err(candle_core::Error::wrap)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.0.by_name.contains_key(name)
    }
}
