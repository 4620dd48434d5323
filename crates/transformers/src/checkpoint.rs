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
    weights,
};

const CONFIG: &str = "config.json";
const GENERATION_CONFIG: &str = "generation_config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const TOKENIZER: &str = "tokenizer.json";

/// A model folder, with its JSON files read and its weights mapped and checked.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    config: ModelConfig,
    tokens: SpecialTokens,
    generation: GenerationOptions,
    files: Vec<Weights>,
    /// Each parameter of the model: its name, the file that has it, and its name there.
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    parameter: String,
    file: usize,
    tensor: String,
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
            None => GenerationOptions::from_folder(&config_path, &text)?,
        };
        let tokens = fields.or(config.default_tokens()).resolve(&config_path)?;

        let (files, index) = open_weights(folder)?;
        let views = files.iter().map(Weights::view).collect::<Result<Vec<_>>>()?;
        let mut found: BTreeMap<&str, usize> = BTreeMap::new();
        for (file, view) in views.iter().enumerate() {
            found.extend(view.iter().map(|(name, _)| (name, file)));
        }
        let at = |name: &str| found.get(name).map(|file| (*file, &files[*file], &views[*file]));

        let mut used: BTreeSet<&str> = config.ignorable().iter().copied().collect();
        let table = config.embedding();
        let head = "lm_head.weight";
        let mut names: Vec<&str> = std::iter::once(table.name).chain(table.others.iter().copied()).collect();
        if config.tied() {
            names.push(head);
        }
        names.retain(|name| found.contains_key(name));
        if let Some(first) = names.first().copied() {
            let (_, file, view) = at(first).expect("the name was found above");
            let data = tensor(&file.path, view, first)?;
            for other in names.iter().skip(1) {
                let (_, file, view) = at(other).expect("the name was found above");
                let same = tensor(&file.path, view, other)?.data() == data.data();
                if same {
                    used.insert(other);
                } else if *other == head && first != head {
                    tracing::warn!(folder = %folder.display(), "the config ties the head, but the weights do not");
                    config = config.untied();
                } else {
                    return Err(Error::Config {
                        path: file.path.clone(),
                        field: (*other).into(),
                        expected: format!("the same values as `{first}`"),
                        found: "others".into(),
                    });
                }
            }
        }

        let mut places = Vec::new();
        for parameter in config.parameters()? {
            let name = parameter.name.as_str();
            let stored = if name == table.name {
                names.first().copied()
            } else {
                found.get_key_value(name).map(|(name, _)| *name)
            };
            let Some((stored, (file, weights, view))) = stored.and_then(|stored| Some((stored, at(stored)?)))
            else {
                let path = index.clone();
                return Err(Error::MissingTensor { path, tensor: parameter.name, expected: parameter.shape });
            };
            used.insert(stored);
            let view = tensor(&weights.path, view, stored)?;
            if view.shape() != parameter.shape.dims() {
                return Err(Error::TensorShape {
                    path: weights.path.clone(),
                    tensor: stored.into(),
                    expected: parameter.shape,
                    found: Shape::from(view.shape()),
                });
            }
            candle_dtype(&weights.path, stored, &view)?;
            places.push(Place { file, tensor: stored.into(), parameter: parameter.name });
        }
        for (name, file) in &found {
            if !used.contains(name) {
                tracing::warn!(file = %files[*file].path.display(), tensor = name, "the model does not use this tensor");
            }
        }
        drop(views);
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
        let load = |place: &Place| {
            let path = &self.files[place.file].path;
            let view = tensor(path, &views[place.file], &place.tensor)?;
            let stored = candle_dtype(path, &place.tensor, &view)?;
            let tensor =
                Tensor::from_raw_buffer(view.data(), stored, view.shape(), device)?.to_dtype(dtype)?;
            Ok((place.parameter.clone(), tensor))
        };
        self.places.iter().map(load).collect()
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
            SafeTensorError::MetadataIncompleteBuffer => SafeTensors::read_metadata(&self.map)
                .ok()
                .map(|(header, metadata)| (8 + header + metadata.data_len()) as u64),
            _ => None,
        };
        match expected {
            Some(expected) if expected > found => {
                Error::Truncated { path: self.path.clone(), expected, found }
            }
            _ => Error::Safetensors { path: self.path.clone(), source },
        }
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
