//! A model folder as Hugging Face lays it out: `config.json`, `generation_config.json`, `model.safetensors` or its
//! shards with `model.safetensors.index.json`, and `tokenizer.json`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::{VarBuilder, VarMap};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensorError, SafeTensors, tensor::TensorView};
use serde::Deserialize;

use crate::{
    decode::GenerationOptions,
    error::{Error, Result},
    json::{self, parse},
    model_config::ModelConfig,
    seq2seq::Seq2Seq,
    tokenizer::Tokenizer,
    tokens::{SpecialTokens, TokenFields},
    weights::{self, Parameter},
};

const CONFIG: &str = "config.json";
const GENERATION_CONFIG: &str = "generation_config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const TOKENIZER: &str = "tokenizer.json";
const HEAD: &str = "lm_head.weight";

/// A model folder, with its JSON files read and its weights mapped and checked.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    config: ModelConfig,
    tokens: SpecialTokens,
    generation: GenerationOptions,
    files: Vec<Weights>,
    places: Vec<Place>,
}

/// A parameter, and the file and name under which it is stored, unless it starts fresh.
#[derive(Debug)]
struct Place {
    parameter: Parameter,
    stored: Option<(usize, String)>,
}

/// A mapped safetensors file.
#[derive(Debug)]
struct Weights {
    path: PathBuf,
    map: Mmap,
}

impl Checkpoint {
    /// Reads the JSON files and the headers of the weights, and checks that every tensor that the config asks for
    /// is there with its shape. A tensor that the model does not use is logged as a warning.
    ///
    /// A head that the config ties to the embeddings, but that the weights hold with other values, is kept apart,
    /// as in `transformers`.
    ///
    /// # Errors
    /// A variant for each way in which a folder can be wrong: [`Error::MissingFile`], [`Error::Json`],
    /// [`Error::Config`], [`Error::Truncated`], [`Error::Safetensors`], [`Error::MissingTensor`],
    /// [`Error::TensorShape`], [`Error::TensorDtype`], and [`Error::Io`].
    pub fn open(folder: &Path) -> Result<Self> {
        let config_path = folder.join(CONFIG);
        let text = json::text(&config_path)?
            .ok_or_else(|| Error::MissingFile { folder: folder.into(), expected: CONFIG })?;
        let mut config = ModelConfig::from_json(&config_path, &text)?;
        let mut fields: TokenFields = parse(&config_path, &text)?;
        let generation_path = folder.join(GENERATION_CONFIG);
        let generation = match json::text(&generation_path)? {
            Some(text) => {
                fields = parse::<TokenFields>(&generation_path, &text)?.or(fields);
                GenerationOptions::from_folder(&generation_path, &text)?
            }
            None => GenerationOptions::from_folder(&config_path, &text)?.or(&config.generation_defaults()),
        };
        let tokens = fields.or(config.default_tokens()).resolve(&config_path)?;
        let (files, index) = open_weights(folder)?;
        let mut stored = Stored::of(&files, &config)?;
        if stored.unify_embeddings(&config)? {
            config = config.untied();
        }
        let places = stored.locate(&config, &index)?;
        drop(stored);
        Ok(Self { folder: folder.into(), config, tokens, generation, files, places })
    }

    /// The model's config.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The special tokens of the folder.
    #[must_use]
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.tokens
    }

    /// The generation options that the folder sets.
    #[must_use]
    pub fn generation_defaults(&self) -> &GenerationOptions {
        &self.generation
    }

    /// The folder's tokenizer.
    ///
    /// # Errors
    /// [`Error::MissingFile`] or [`Error::Tokenizer`].
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        Tokenizer::open(&self.folder.join(TOKENIZER))
    }

    /// The model for inference, with its weights cast to `dtype` on `device`.
    ///
    /// # Errors
    /// A tensor error where `dtype` cannot be used or memory ends.
    pub fn model(&self, dtype: DType, device: &Device) -> Result<Box<dyn Seq2Seq>> {
        let tensors = self.tensors(dtype, device)?;
        let vb = VarBuilder::from_tensors(tensors.into_iter().collect(), dtype, device);
        self.config.build(&vb, self.tokens.clone(), self.generation.clone())
    }

    /// The weights as trainable variables, to train them further.
    ///
    /// # Errors
    /// As for [`model`](Self::model).
    pub fn var_map(&self, dtype: DType, device: &Device) -> Result<VarMap> {
        let map = VarMap::new();
        for (name, tensor) in self.tensors(dtype, device)? {
            weights::insert(&map, &name, &tensor)?;
        }
        Ok(map)
    }

    fn tensors(&self, dtype: DType, device: &Device) -> Result<Vec<(String, Tensor)>> {
        let views = self.files.iter().map(Weights::view).collect::<Result<Vec<_>>>()?;
        let load = |Place { parameter, stored }: &Place| {
            let tensor = match stored {
                Some((file, name)) => {
                    let path = &self.files[*file].path;
                    let view = tensor(path, &views[*file], name)?;
                    let dtype = candle_dtype(path, name, &view)?;
                    Tensor::from_raw_buffer(view.data(), dtype, view.shape(), device)?
                }
                None => weights::fresh(parameter, 0, 0, device)?,
            };
            Ok((parameter.name.clone(), tensor.to_dtype(dtype)?))
        };
        self.places.iter().map(load).collect()
    }
}

/// The tensors of a checkpoint by the names that the model gives them.
struct Stored<'a> {
    files: &'a [Weights],
    views: Vec<SafeTensors<'a>>,
    /// For each of the model's names, the file and the name there.
    names: BTreeMap<String, (usize, String)>,
}

impl<'a> Stored<'a> {
    fn of(files: &'a [Weights], config: &ModelConfig) -> Result<Self> {
        let views = files.iter().map(Weights::view).collect::<Result<Vec<_>>>()?;
        let mut names = BTreeMap::new();
        for (file, view) in views.iter().enumerate() {
            for (name, _) in view.iter() {
                names.insert(config.full_name(name), (file, name.to_string()));
            }
        }
        Ok(Self { files, views, names })
    }

    fn path(&self, file: usize) -> &'a Path {
        &self.files[file].path
    }

    fn tensor(&self, (file, name): &(usize, String)) -> Result<TensorView<'a>> {
        tensor(self.path(*file), &self.views[*file], name)
    }

    /// Leaves one name of the embedding table, its own, where the weights have it under several, and tells whether
    /// a head that the config ties has values of its own.
    fn unify_embeddings(&mut self, config: &ModelConfig) -> Result<bool> {
        let table = config.embedding();
        let others = table.others.iter().copied().chain(config.tied().then_some(HEAD));
        let mut untied = false;
        for other in others {
            let Some(place) = self.names.get(other).cloned() else { continue };
            let Some(first) = self.names.get(table.name) else {
                self.names.insert(table.name.into(), place);
                self.names.remove(other);
                continue;
            };
            if self.tensor(first)?.data() == self.tensor(&place)?.data() {
                self.names.remove(other);
            } else if other == HEAD {
                let file = self.path(place.0).display();
                tracing::warn!(%file, "the config ties the head to the embeddings, but the weights do not");
                untied = true;
            } else {
                return Err(Error::Config {
                    path: self.path(place.0).into(),
                    field: other.into(),
                    expected: format!("the same values as `{}`", table.name),
                    found: "others".into(),
                });
            }
        }
        Ok(untied)
    }

    /// Where each parameter of the model lies, with its shape and type checked. `index` is the file that lists the
    /// tensors.
    fn locate(&mut self, config: &ModelConfig, index: &Path) -> Result<Vec<Place>> {
        let mut places = Vec::new();
        for parameter in config.parameters()? {
            let stored = self.names.remove(&parameter.name);
            let Some(place) = &stored else {
                if config.optional().contains(&parameter.name.as_str()) {
                    places.push(Place { parameter, stored });
                    continue;
                }
                let (path, tensor, expected) = (index.into(), parameter.name, parameter.shape);
                return Err(Error::MissingTensor { path, tensor, expected });
            };
            let (path, view) = (self.path(place.0), self.tensor(place)?);
            if view.shape() != parameter.shape.dims() {
                return Err(Error::TensorShape {
                    path: path.into(),
                    tensor: place.1.clone(),
                    expected: parameter.shape,
                    found: Shape::from(view.shape()),
                });
            }
            candle_dtype(path, &place.1, &view)?;
            places.push(Place { parameter, stored });
        }
        for (name, (file, stored)) in &self.names {
            if !config.ignorable().contains(&name.as_str()) {
                let file = self.path(*file).display();
                tracing::warn!(%file, tensor = stored, "the model does not use this tensor");
            }
        }
        Ok(places)
    }
}

/// The files that the index names.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Maps the weights of `folder`, and names the file that says what is in them.
fn open_weights(folder: &Path) -> Result<(Vec<Weights>, PathBuf)> {
    let single = folder.join(WEIGHTS);
    if single.exists() {
        return Ok((vec![Weights::open(folder, &single, WEIGHTS)?], single));
    }
    let path = folder.join(INDEX);
    let Some(text) = json::text(&path)? else {
        let expected = "model.safetensors or model.safetensors.index.json";
        return Err(Error::MissingFile { folder: folder.into(), expected });
    };
    let index: Index = parse(&path, &text)?;
    let shards: BTreeSet<&String> = index.weight_map.values().collect();
    let files = shards.into_iter().map(|shard| Weights::open(folder, &folder.join(shard), INDEX));
    Ok((files.collect::<Result<_>>()?, path))
}

impl Weights {
    /// Maps `path`, which `named_by` names, and checks its header.
    fn open(folder: &Path, path: &Path, named_by: &'static str) -> Result<Self> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let expected = if named_by == INDEX {
                    "a shard that model.safetensors.index.json names"
                } else {
                    named_by
                };
                return Err(Error::MissingFile { folder: folder.into(), expected });
            }
            Err(error) => return Err(Error::io(path, "open")(error)),
        };
        // SAFETY: the mapping is read only, and the bytes are copied into tensors. A file that another process
        // changes while it is mapped gives wrong weights or a bus error, as with every reader that maps files.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io(path, "map"))?;
        let weights = Self { path: path.into(), map };
        weights.view()?;
        Ok(weights)
    }

    fn view(&self) -> Result<SafeTensors<'_>> {
        SafeTensors::deserialize(&self.map).map_err(|source| self.wrong(source))
    }

    /// Tells a file that ends too early from one that is not a safetensors file.
    fn wrong(&self, source: SafeTensorError) -> Error {
        let found = self.map.len() as u64;
        let expected = match &source {
            SafeTensorError::HeaderTooSmall => Some(8),
            SafeTensorError::InvalidHeaderLength => {
                let start = self.map.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
                start.map(|header| header.saturating_add(8))
            }
            SafeTensorError::MetadataIncompleteBuffer => self.expected_length(),
            _ => None,
        };
        match expected {
            Some(expected) if expected > found => {
                Error::Truncated { path: self.path.clone(), expected, found }
            }
            _ => Error::Safetensors { path: self.path.clone(), source },
        }
    }

    /// The size in bytes that a header which is whole asks for.
    fn expected_length(&self) -> Option<u64> {
        let header = u64::from_le_bytes(*self.map.first_chunk::<8>()?);
        let end = usize::try_from(header).ok()?.checked_add(8)?;
        let tensors: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(self.map.get(8..end)?).ok()?;
        let ends = tensors.values().filter_map(|tensor| tensor["data_offsets"][1].as_u64());
        Some((end as u64).saturating_add(ends.max()?))
    }
}

fn tensor<'a>(path: &Path, view: &SafeTensors<'a>, name: &str) -> Result<TensorView<'a>> {
    view.tensor(name).map_err(|source| Error::Safetensors { path: path.into(), source })
}

fn candle_dtype(path: &Path, name: &str, view: &TensorView<'_>) -> Result<DType> {
    match view.dtype() {
        Dtype::F32 => Ok(DType::F32),
        Dtype::F16 => Ok(DType::F16),
        Dtype::BF16 => Ok(DType::BF16),
        other => {
            Err(Error::TensorDtype { path: path.into(), tensor: name.into(), found: format!("{other:?}") })
        }
    }
}
