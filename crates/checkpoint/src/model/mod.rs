//! A model's folder whose tensors are the parameters of an architecture.

mod places;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::{Init, VarBuilder, VarMap, var_builder::SimpleBackend};
use safetensors::Dtype;

use crate::{
    adapter::Adapter,
    architecture::Architecture,
    error::{Error, Result},
    parameters::{self, Parameter},
    part::Part,
    tokenizer::Tokenizer,
    weights::{MappedBytes, RawTensor, WeightFile, open_weights, quantised::Packing, type_name},
};
use places::{Elements, Place, Stored, shared_prefix};

/// A folder whose weights are mapped, with the place of each parameter of its model.
#[derive(Debug)]
pub struct StoredModel {
    folder: PathBuf,
    part: Option<Part>,
    files: Vec<WeightFile>,
    /// The weights file, or the index of its shards.
    index: PathBuf,
    places: Vec<Place>,
    /// The places by the names of their parameters.
    by_name: BTreeMap<String, usize>,
    /// The tensors that the model does not read, by its names, with the indices of the file and of the tensor there.
    rest: Vec<(String, (usize, usize))>,
    surplus: Vec<String>,
    /// The prefix of all tensor names that the model's own names lack.
    prefix: String,
    /// The number of rows in the embedding table, by the config.
    rows: Option<usize>,
}

/// A tensor's name, type, shape and bytes.
type NamedTensor<'a> = (String, Dtype, &'a [usize], Cow<'a, [u8]>);

impl StoredModel {
    /// Maps the weights of `folder`, or those of one `part`, and checks that every tensor that `architecture` asks for is there
    /// with its shape. A tensor that the model does not use is logged as a warning and listed by [`surplus`](Self::surplus). The
    /// weights are those of the first of `model.safetensors`, `model.safetensors.index.json`, `pytorch_model.bin` and
    /// `pytorch_model.bin.index.json` that is there. No code in a PyTorch file is run.
    ///
    /// An adapter's folder has the weights of its [base model](Adapter::local_base), merged with the adapter.
    ///
    /// A prefix that all tensor names share and that the model's names lack, such as `module.`, is taken off, with a warning;
    /// [`prefix`](Self::prefix) names it.
    ///
    /// A head that the config ties to the embeddings, but that the weights hold with other values, is kept apart, as in
    /// `transformers`: `architecture` is [untied](Architecture::untie).
    ///
    /// # Errors
    /// [`Error::MissingFile`], [`Error::MissingShard`], [`Error::MissingBase`], [`Error::Adapter`], [`Error::Pointer`],
    /// [`Error::Json`], [`Error::Config`], [`Error::Truncated`], [`Error::Safetensors`],
    /// [`Error::Archive`], [`Error::Pytorch`], [`Error::Pickle`], [`Error::MissingTensor`], [`Error::TensorShape`],
    /// [`Error::TensorDtype`], and [`Error::Io`].
    pub fn open(folder: &Path, part: Option<Part>, architecture: &mut dyn Architecture) -> Result<Self> {
        let (files, index) = match Adapter::is_alone_in(folder) {
            true => {
                let adapter = Adapter::open(folder)?;
                adapter.merged_weights(&adapter.local_base()?)?
            }
            false => open_weights(folder)?,
        };
        let tensors = files.iter().map(|file| file.tensors().len()).sum();
        architecture.check_layers(tensors).map_err(|error| error.within(&folder.join("config.json")))?;
        let prefix = shared_prefix(&files, architecture, part)?;
        if !prefix.is_empty() {
            let file = index.display();
            tracing::warn!(%file, prefix, "all tensor names begin with this prefix, which is taken off");
        }
        let rows = architecture.fields()["vocab_size"].as_u64().and_then(|rows| usize::try_from(rows).ok());
        let mut stored = Stored::of(&files, architecture, part, &prefix);
        if architecture.adapt_to_weights(&|start| stored.has(start)) {
            stored = Stored::of(&files, architecture, part, &prefix);
        }
        if stored.unify_embeddings(architecture)? {
            architecture.untie();
        }
        let places = stored.locate(architecture, &index)?;
        let rest = stored.rest();
        let surplus = stored.surplus(architecture);
        let names = places.iter().map(|place| place.parameter.name.clone());
        let by_name = names.enumerate().map(|(at, name)| (name, at)).collect();
        Ok(Self { folder: folder.into(), part, files, index, places, by_name, rest, surplus, prefix, rows })
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The part of the folder's models, if there are several.
    #[must_use]
    pub fn part(&self) -> Option<Part> {
        self.part
    }

    /// The prefix of all tensor names that was taken off; empty where there is none.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The folder's tokenizer, as [`Tokenizer::from_folder`] reads it.
    ///
    /// Each token needs a row in the embedding table. Special tokens without one are logged as a warning, since some
    /// released models have a mask token that they never read.
    ///
    /// # Errors
    /// [`Error::MissingFile`], [`Error::Pointer`], [`Error::Json`], [`Error::Config`], [`Error::Tokenizer`] or
    /// [`Error::TokenBeyondRows`].
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        let tokenizer = match self.part {
            Some(part) => part.tokenizer(Tokenizer::from_folder(&part.tokenizer_folder(&self.folder))?)?,
            None => Tokenizer::from_folder(&self.folder)?,
        };
        if let Some(rows) = self.rows
            && let Some((token, id, is_special)) = tokenizer.beyond(rows)
        {
            let path = tokenizer.path().to_owned();
            if !is_special {
                return Err(Error::TokenBeyondRows { path, weights: self.index.clone(), rows, token, id });
            }
            let file = path.display();
            tracing::warn!(%file, token, id, rows, "the embedding table has no row for this special token");
        }
        Ok(tokenizer)
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
        for place in &self.places {
            let Some(Elements { tensor: (file, tensor), packing, .. }) = place.stored else { continue };
            let name = match packing {
                Some(Packing::Mxfp4) => "mxfp4".into(),
                _ => type_name(self.files[file].tensors()[tensor].dtype),
            };
            *types.entry(name).or_default() += place.parameter.shape.elem_count();
        }
        types
    }

    /// All stored tensors by the model's own names, first those that the model uses: their types, shapes and elements. Quantised
    /// ones come with their scales.
    pub(crate) fn all_tensors(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        let used = self.places.iter().flat_map(|place| {
            place.stored.iter().flat_map(|elements| elements.stored(&place.parameter.name))
        });
        used.chain(self.rest.iter().cloned()).map(|(name, (file, tensor))| {
            let file = &self.files[file];
            let tensor = &file.tensors()[tensor];
            (name, tensor.dtype, tensor.shape.as_slice(), file.bytes(tensor))
        })
    }

    /// One tensor of the model, read, cast to `dtype` and put on `device`. The pages of its file are
    /// released, so reading many tensors needs no more memory than the tensors kept.
    ///
    /// # Errors
    /// [`Error::UnknownTensor`] where `name` is not one of [`parameters`](Self::parameters), or a tensor error.
    pub fn tensor(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        match self.by_name.get(name) {
            Some(&at) => self.read(&self.places[at], dtype, device),
            None => Err(Error::UnknownTensor { path: self.index.clone(), tensor: name.into() }),
        }
    }

    /// One tensor's elements as they are stored; in f32 those of a tensor that starts fresh. The pages of its file are
    /// released with the elements.
    ///
    /// # Errors
    /// As for [`tensor`](Self::tensor).
    pub fn raw(&self, name: &str) -> Result<RawTensor<'_>> {
        match self.by_name.get(name).map(|at| self.places[*at].stored) {
            Some(Some(elements)) => elements.raw(&self.files),
            _ => {
                let values = self.values(name)?;
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                Ok(RawTensor { dtype: DType::F32, bytes: MappedBytes::from(bytes) })
            }
        }
    }

    /// One tensor's values in f32, row after row.
    ///
    /// # Errors
    /// As for [`tensor`](Self::tensor).
    pub fn values(&self, name: &str) -> Result<Vec<f32>> {
        Ok(self.tensor(name, DType::F32, &Device::Cpu)?.flatten_all()?.to_vec1()?)
    }

    /// The values of a tensor of whole numbers, which is none of the model's [parameters](Self::parameters).
    ///
    /// # Errors
    /// [`Error::UnknownTensor`], and [`Error::TensorDtype`] for other numbers, and for negative ones and those above 2^32.
    pub fn whole_numbers(&self, name: &str) -> Result<Vec<u32>> {
        let Some((_, (file, tensor))) = self.rest.iter().find(|(other, _)| other == name) else {
            return Err(Error::UnknownTensor { path: self.index.clone(), tensor: name.into() });
        };
        let file = &self.files[*file];
        file.whole_numbers(&file.tensors()[*tensor])
    }

    fn read(&self, place: &Place, dtype: DType, device: &Device) -> Result<Tensor> {
        match place.stored {
            Some(elements) => {
                let raw = elements.raw(&self.files)?;
                let read =
                    Tensor::from_raw_buffer(&raw.bytes, raw.dtype, place.parameter.shape.dims(), device)?;
                Ok(read.to_dtype(dtype)?)
            }
            None => Ok(parameters::fresh(&place.parameter, 0, 0, device)?.to_dtype(dtype)?),
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

    /// The weights in f32 on the CPU, each read on demand, so that a head can be built without its body.
    #[must_use]
    pub fn one_by_one(&self) -> VarBuilder<'_> {
        VarBuilder::from_backend(Box::new(OneByOne(self)), DType::F32, Device::Cpu)
    }

    /// The weights as trainable variables, to train them further.
    ///
    /// # Errors
    /// As for [`var_builder`](Self::var_builder).
    pub fn var_map(&self, dtype: DType, device: &Device) -> Result<VarMap> {
        let map = VarMap::new();
        for place in &self.places {
            parameters::insert(&map, &place.parameter.name, &self.read(place, dtype, device)?)?;
        }
        Ok(map)
    }

    /// The stored tensors that a model of `architecture` can start from, by its names, in f32. A head of another kind or shape than
    /// the folder's is excluded. If the weights do not tie the embeddings as the config does, `architecture` is
    /// [untied](Architecture::untie).
    ///
    /// # Errors
    /// [`Error::Config`] where a value of the architecture cannot be used, and those of reading a tensor.
    pub fn tensors_for(&self, architecture: &mut dyn Architecture) -> Result<BTreeMap<String, Tensor>> {
        let mut stored = Stored::of(&self.files, architecture, None, &self.prefix);
        if stored.unify_embeddings(architecture)? {
            architecture.untie();
        }
        let mut tensors = BTreeMap::new();
        for parameter in architecture.parameters()? {
            let Some(elements) = stored.take(&parameter.name) else { continue };
            if let Some(shape) = elements.shape(&self.files).filter(|shape| shape == parameter.shape.dims()) {
                let raw = elements.raw(&self.files)?;
                let read = Tensor::from_raw_buffer(&raw.bytes, raw.dtype, &shape, &Device::Cpu)?;
                tensors.insert(parameter.name, read.to_dtype(DType::F32)?);
            } else {
                let (file, tensor) = elements.tensor;
                let tensor = &self.files[file].tensors()[tensor];
                tracing::warn!(
                    tensor = tensor.name,
                    "the shape differs from that of the model to train; initialized randomly"
                );
            }
        }
        Ok(tensors)
    }
}

/// Reads each tensor on demand.
struct OneByOne<'a>(&'a StoredModel);

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
