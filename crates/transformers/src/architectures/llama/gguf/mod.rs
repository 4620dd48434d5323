//! GGUF files, llama.cpp's format: config, tokenizer and weights in one.
//!
//! The weights are mostly quantised. On a CPU they stay so: products decode them, and embeddings are decoded when they are
//! looked up. For other devices and for int8 they are made into the numbers that they stand for when a model is built. The
//! model is the same as from safetensors.

mod config;
mod names;

use std::path::Path;

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::VarBuilder;
use sporran_checkpoint::{Architecture, GgufFile, Parameter, Result, Tokenizer};

use self::{
    config::config,
    names::{apart, expert_of, has_adjacent_pairs, regrouped, stored},
};
use super::{Llama, LlamaConfig, NormKind, SHARED_GATE};
use crate::{
    causal::CausalLm,
    decode::GenerationOptions,
    device::{DeviceName, Precision},
    packed::{PackedLlama, StoredWeights, coding_of},
};

/// An opened GGUF file of a model of LLaMA's shape.
#[derive(Debug)]
pub struct Gguf {
    config: LlamaConfig,
    file: GgufFile,
}

impl Gguf {
    /// Reads what the file says of itself, and checks that every tensor of the model is there with its shape.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Gguf`] where the file is not GGUF, [`Error::Config`] where it holds another kind of
    /// model or lacks a field, [`Error::MissingTensor`] and [`Error::TensorShape`].
    ///
    /// [`Error::Io`]: sporran_checkpoint::Error::Io
    /// [`Error::Gguf`]: sporran_checkpoint::Error::Gguf
    /// [`Error::Config`]: sporran_checkpoint::Error::Config
    /// [`Error::MissingTensor`]: sporran_checkpoint::Error::MissingTensor
    /// [`Error::TensorShape`]: sporran_checkpoint::Error::TensorShape
    pub fn open(path: &Path) -> Result<Self> {
        let file = GgufFile::open(path)?;
        let config = config(&file)?;
        let checked = config.check_sizes().and_then(|()| config.validate());
        let checked = checked.and_then(|()| config.check_layers(file.tensor_count()));
        checked.map_err(|error| error.within(path))?;
        for mut parameter in config.parameters()? {
            let name = stored(config.kind, &parameter.name);
            parameter.shape = stored_shape(&config, &parameter);
            file.check_tensor(&name, parameter)?;
        }
        Ok(Self { config, file })
    }

    /// The model's config.
    #[must_use]
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// The model for inference, with its weights made into `dtype` on `device`.
    ///
    /// # Errors
    /// [`Error::Gguf`](sporran_checkpoint::Error::Gguf) where a tensor cannot be read, or a tensor error where memory ends.
    pub fn causal_model(&self, dtype: DType, device: &Device) -> Result<Box<dyn CausalLm>> {
        let load = |parameter: Parameter| {
            let tensor = match expert_of(&parameter.name) {
                Some(_) => self.expert(&parameter, dtype, device)?,
                None => self.tensor(&parameter.name, dtype, device)?,
            };
            Ok((parameter.name, tensor))
        };
        let tensors = self.config.parameters()?.into_iter().map(load).collect::<Result<_>>()?;
        let vb = VarBuilder::from_tensors(tensors, dtype, device);
        let model = Llama::new(&self.config, &vb)?;
        Ok(Box::new(model.with_defaults(self.config.special_tokens(), GenerationOptions::default())))
    }

    /// The model for inference on a device: packed on a CPU, over candle on a GPU.
    ///
    /// # Errors
    /// As for [`causal_model`](Self::causal_model), and those of [`DeviceName::check`] and [`DeviceName::open`].
    pub fn causal(&self, device: DeviceName, precision: Precision) -> Result<Box<dyn CausalLm>> {
        device.check(precision)?;
        if device != DeviceName::Cpu {
            return self.causal_model(precision.dtype()?, &device.open()?);
        }
        let mut read = |name: &str| self.weights(name);
        let (tokens, generation) = (self.config.special_tokens(), GenerationOptions::default());
        let model = PackedLlama::llama(&self.config, tokens, generation, precision.packed()?, &mut read)?;
        Ok(Box::new(model))
    }

    /// A tensor in the coding of the file, if it is one that products take.
    fn weights(&self, name: &str) -> Result<StoredWeights<'_>> {
        if let Some(weights) = self.raw_weights(name)? {
            return Ok(weights);
        }
        let tensor = self.tensor(name, DType::F32, &Device::Cpu)?;
        Ok(StoredWeights::of_values(&tensor.flatten_all()?.to_vec1::<f32>()?))
    }

    /// The same; none where products do not take the coding of the file.
    fn raw_weights(&self, name: &str) -> Result<Option<StoredWeights<'_>>> {
        let is_product = name.ends_with(".weight") && !name.ends_with("norm.weight");
        let raw = if is_product { self.file.raw_tensor(&stored(self.config.kind, name))? } else { None };
        if let Some((kind, bytes)) = raw
            && let Some(coding) = coding_of(kind)
        {
            if let Some(places) = self.regrouping(name) {
                return Ok(Some(StoredWeights::new(coding, regrouped(&bytes, &places).into())));
            }
            let bytes = match (self.turned_heads(name), expert_of(name)) {
                (Some(heads), _) => apart(&bytes, heads, self.config.head_width()).into(),
                (None, Some(expert)) => {
                    let size = bytes.len() / self.config.num_experts.unwrap_or(1).max(1);
                    bytes[expert * size..][..size].to_vec().into()
                }
                (None, None) => bytes,
            };
            return Ok(Some(StoredWeights::new(coding, bytes)));
        }
        Ok(None)
    }

    /// For a tensor of queries, keys and values that the file has one after the other: the place of each block of the model there.
    fn regrouping(&self, name: &str) -> Option<Vec<usize>> {
        let is_joined =
            ["query_key_value.weight", "query_key_value.bias"].iter().any(|end| name.ends_with(end));
        let places = self.config.input_places().filter(|_| is_joined)?;
        let mut inverse = vec![0; places.len()];
        places.iter().enumerate().for_each(|(stored, place)| inverse[*place] = stored);
        Some(inverse)
    }

    /// The number of heads of a tensor whose rows of pairs that are turned together lie side by side in the file.
    fn turned_heads(&self, name: &str) -> Option<usize> {
        let heads = match name.rsplit('.').nth(1) {
            Some("q_proj") => self.config.num_attention_heads,
            Some("k_proj") => self.config.groups(),
            _ => return None,
        };
        has_adjacent_pairs(self.config.kind).then_some(heads)
    }

    /// The weights of one expert. The tensor in the file holds those of all experts of the layer.
    fn expert(&self, parameter: &Parameter, dtype: DType, device: &Device) -> Result<Tensor> {
        let tensor = match self.raw_weights(&parameter.name)? {
            Some(weights) => Tensor::from_vec(weights.values(), &parameter.shape, device)?,
            // A copy, because a part of a tensor would keep all of it.
            None => self.tensor(&parameter.name, DType::F32, device)?.force_contiguous()?,
        };
        Ok(tensor.to_dtype(dtype)?)
    }

    fn tensor(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        let tensor = self.file.tensor(&stored(self.config.kind, name), device)?;
        if let Some(expert) = expert_of(name) {
            return Ok(tensor.get(expert)?.to_dtype(dtype)?);
        }
        if name.ends_with(&format!("{SHARED_GATE}.weight")) {
            return Ok(tensor.unsqueeze(0)?.to_dtype(dtype)?);
        }
        if let Some(places) = self.regrouping(name) {
            let shape = tensor.shape().clone();
            let blocks = tensor.reshape((places.len(), ()))?;
            let places: Vec<u32> = places.into_iter().map(|place| place as u32).collect();
            let blocks = blocks.index_select(&Tensor::new(places, device)?, 0)?;
            return Ok(blocks.reshape(shape)?.to_dtype(dtype)?);
        }
        let is_whole =
            matches!(self.config.kind.norm_kind(), NormKind::RootAroundOne | NormKind::LayerAroundOne);
        if name.ends_with("norm.weight") && is_whole {
            // In these files the weights of norms are whole.
            return Ok((tensor - 1.0)?.to_dtype(dtype)?);
        }
        let Some(heads) = self.turned_heads(name) else { return Ok(tensor.to_dtype(dtype)?) };
        // In these files the two of a pair that is turned together lie side by side, here half a head apart.
        let shape = tensor.shape().clone();
        let pairs = tensor.reshape((heads, self.config.head_width() / 2, 2, ()))?;
        Ok(pairs.transpose(1, 2)?.contiguous()?.reshape(shape)?.to_dtype(dtype)?)
    }

    /// The tokenizer that the file holds.
    ///
    /// # Errors
    /// As for [`GgufFile::tokenizer`].
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        self.file.tokenizer()
    }
}

/// The shape of a parameter's tensor in the file.
fn stored_shape(config: &LlamaConfig, parameter: &Parameter) -> Shape {
    let dims = parameter.shape.dims();
    if expert_of(&parameter.name).is_some() {
        return [&[config.num_experts.unwrap_or(0)][..], dims].concat().into();
    }
    if parameter.name.ends_with(&format!("{SHARED_GATE}.weight")) {
        // It is stored without the dimension of its one output.
        return dims[1..].to_vec().into();
    }
    parameter.shape.clone()
}
