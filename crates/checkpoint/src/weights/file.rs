//! A weight file, mapped, with the places of its tensors.

use std::{
    borrow::Cow,
    fs::File,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Tensor};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use super::{mapped::MappedBytes, pytorch, tensor::StoredTensor};
use crate::{
    error::{Error, Result},
    pointer,
};

/// A mapped weight file: safetensors, or PyTorch's.
#[derive(Debug)]
pub(crate) struct WeightFile {
    path: PathBuf,
    map: Mmap,
    tensors: Vec<StoredTensor>,
}

impl WeightFile {
    /// Maps `path` and reads the positions of its tensors; `expected` names the file where there is none.
    pub(crate) fn open(path: &Path, expected: &'static str) -> Result<Self> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::MissingFile { folder: path.parent().unwrap_or(path).into(), expected });
            }
            Err(error) => return Err(Error::io(path, "open")(error)),
        };
        // SAFETY: the mapping is read only, and the bytes are copied into tensors. A file that another process
        // changes while it is mapped gives wrong weights or a bus error, as with every reader that maps files.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io(path, "map"))?;
        pointer::check(path, &map)?;
        let tensors = if path.extension().is_some_and(|extension| extension == "safetensors") {
            safetensors(path, &map)?
        } else {
            pytorch::tensors(path, &map)?
        };
        Ok(Self { path: path.into(), map, tensors })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The same file under another name in errors.
    pub(crate) fn named(self, path: &Path) -> Self {
        Self { path: path.into(), ..self }
    }

    /// Leaves out the tensors with other names.
    pub(crate) fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.tensors.retain(|tensor| keeps(&tensor.name));
    }

    pub(super) fn map(&self) -> &Mmap {
        &self.map
    }

    pub(crate) fn tensors(&self) -> &[StoredTensor] {
        &self.tensors
    }

    /// The elements of a tensor of this file.
    pub(crate) fn bytes(&self, tensor: &StoredTensor) -> Cow<'_, [u8]> {
        tensor.bytes(&self.map)
    }

    /// Reads a tensor of this file, and lets go of the pages that it was read from.
    pub(crate) fn read(&self, tensor: &StoredTensor, dtype: DType, device: &Device) -> Result<Tensor> {
        let raw = self.raw(tensor)?;
        let read = Tensor::from_raw_buffer(&raw.bytes, raw.dtype, &tensor.shape, device)?;
        Ok(read.to_dtype(dtype)?)
    }

    /// The elements of a tensor of this file.
    pub(crate) fn raw(&self, tensor: &StoredTensor) -> Result<RawTensor<'_>> {
        Ok(RawTensor { dtype: self.dtype(tensor)?, bytes: MappedBytes::new(self.bytes(tensor), &self.map) })
    }

    /// The values of a tensor of whole numbers, none of them negative or above 2^32.
    pub(crate) fn whole_numbers(&self, tensor: &StoredTensor) -> Result<Vec<u32>> {
        let size = match tensor.dtype {
            Dtype::U8 | Dtype::I8 => Some(1),
            Dtype::U16 | Dtype::I16 => Some(2),
            Dtype::U32 | Dtype::I32 => Some(4),
            Dtype::U64 | Dtype::I64 => Some(8),
            _ => None,
        };
        let is_signed = matches!(tensor.dtype, Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64);
        let number = |bytes: &[u8]| {
            let is_negative = is_signed && bytes.last().is_some_and(|high| high & 0x80 != 0);
            let number = bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
            u32::try_from(number).ok().filter(|_| !is_negative)
        };
        let bytes = self.bytes(tensor);
        let numbers = size.and_then(|size| bytes.chunks_exact(size).map(number).collect());
        numbers.ok_or_else(|| Error::TensorDtype {
            path: self.path.clone(),
            tensor: tensor.name.clone(),
            found: format!("{:?}, where whole numbers from 0 to 2^32 are expected", tensor.dtype),
        })
    }

    /// The type of a tensor, where a model can be made of it.
    pub(crate) fn dtype(&self, tensor: &StoredTensor) -> Result<DType> {
        match tensor.dtype {
            Dtype::F32 => Ok(DType::F32),
            Dtype::F16 => Ok(DType::F16),
            Dtype::BF16 => Ok(DType::BF16),
            other => Err(Error::TensorDtype {
                path: self.path.clone(),
                tensor: tensor.name.clone(),
                found: format!("{other:?}"),
            }),
        }
    }
}

/// The elements of a tensor as its file stores them, row after row.
#[derive(Debug)]
pub struct RawTensor<'a> {
    /// The type of the elements: f32, f16 or bf16.
    pub dtype: DType,
    /// The elements, little-endian.
    pub bytes: MappedBytes<'a>,
}

/// The tensors of a safetensors file, in the order of their positions.
fn safetensors(path: &Path, bytes: &[u8]) -> Result<Vec<StoredTensor>> {
    let file = SafeTensors::deserialize(bytes).map_err(|source| wrong(path, bytes, source))?;
    let mut tensors: Vec<StoredTensor> = file
        .iter()
        .map(|(name, view)| StoredTensor {
            name: name.into(),
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            // The view's data is a part of the file.
            start: view.data().as_ptr().addr() - bytes.as_ptr().addr(),
            strides: None,
        })
        .collect();
    tensors.sort_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
    Ok(tensors)
}

/// Distinguishes a truncated file from one that is not a safetensors file.
fn wrong(path: &Path, bytes: &[u8], source: SafeTensorError) -> Error {
    let found = bytes.len() as u64;
    let expected = match &source {
        SafeTensorError::HeaderTooSmall => Some(8),
        SafeTensorError::InvalidHeaderLength => {
            let start = bytes.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
            start.map(|header| header.saturating_add(8))
        }
        SafeTensorError::MetadataIncompleteBuffer => expected_length(bytes),
        _ => None,
    };
    match expected {
        Some(expected) if expected > found => Error::Truncated { path: path.into(), expected, found },
        _ => Error::Safetensors { path: path.into(), source },
    }
}

/// The size in bytes that a complete header requires.
fn expected_length(bytes: &[u8]) -> Option<u64> {
    let header = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
    let end = usize::try_from(header).ok()?.checked_add(8)?;
    let tensors: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(bytes.get(8..end)?).ok()?;
    let ends = tensors.values().filter_map(|tensor| tensor["data_offsets"][1].as_u64());
    Some((end as u64).saturating_add(ends.max()?))
}
