//! Tensors of weights that no model of this crate is built from as a whole.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Tensor};
use safetensors::Dtype;

use super::{file::WeightFile, files::open_weights, tensor::StoredTensor};
use crate::error::Result;

/// The tensors of a folder of weights without a model config, such as a layer of sentence-transformers, and the file
/// that lists them.
///
/// # Errors
/// Those of reading weight files.
pub fn tensors(folder: &Path, dtype: DType, device: &Device) -> Result<(HashMap<String, Tensor>, PathBuf)> {
    let (files, index) = open_weights(folder)?;
    let mut tensors = HashMap::new();
    for file in &files {
        for tensor in file.tensors() {
            tensors.insert(tensor.name.clone(), file.read(tensor, dtype, device)?);
        }
    }
    Ok((tensors, index))
}

/// The shapes of the tensors of a folder of weights, by name.
///
/// # Errors
/// Those of opening weight files.
pub fn tensor_shapes(folder: &Path) -> Result<BTreeMap<String, Vec<usize>>> {
    let (files, _) = open_weights(folder)?;
    let tensors = files.iter().flat_map(|file| file.tensors());
    Ok(tensors.map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect())
}

/// The tensors of the file `name` of a folder, but for those of whole numbers, which are no weights.
///
/// # Errors
/// Those of reading weight files.
pub fn tensors_of(
    folder: &Path,
    name: &'static str,
    dtype: DType,
    device: &Device,
) -> Result<HashMap<String, Tensor>> {
    let file = WeightFile::open(&folder.join(name), name)?;
    let read = |tensor: &StoredTensor| Ok((tensor.name.clone(), file.read(tensor, dtype, device)?));
    file.tensors().iter().filter(|tensor| file.dtype(tensor).is_ok()).map(read).collect()
}

/// The number of elements of each type in a safetensors file. The folder needs no config.
///
/// # Errors
/// [`MissingFile`](crate::Error::MissingFile), [`Truncated`](crate::Error::Truncated),
/// [`Safetensors`](crate::Error::Safetensors) or [`Io`](crate::Error::Io).
pub fn weight_types(path: &Path) -> Result<BTreeMap<String, usize>> {
    let file = WeightFile::open(path, "a file of safetensors")?;
    let mut types = BTreeMap::new();
    for tensor in file.tensors() {
        *types.entry(type_name(tensor.dtype)).or_default() += tensor.count();
    }
    Ok(types)
}

pub(crate) fn type_name(dtype: Dtype) -> String {
    format!("{dtype:?}").to_lowercase()
}

/// The tensors of a folder of weights whose names begin with `prefix` and a dot.
///
/// # Errors
/// Those of reading weight files.
pub fn tensors_under(
    folder: &Path,
    prefix: &str,
    dtype: DType,
    device: &Device,
) -> Result<HashMap<String, Tensor>> {
    let (files, _) = open_weights(folder)?;
    let mut tensors = HashMap::new();
    for file in &files {
        for tensor in file.tensors() {
            if tensor.name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.')) {
                tensors.insert(tensor.name.clone(), file.read(tensor, dtype, device)?);
            }
        }
    }
    Ok(tensors)
}
