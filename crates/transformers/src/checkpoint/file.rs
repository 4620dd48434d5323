//! A weight file, mapped, with the places of its tensors.

use std::{
    borrow::Cow,
    fs::File,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Tensor};
use memmap2::{Mmap, UncheckedAdvice};
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use super::pytorch;
use crate::error::{Error, Result};

/// A tensor of a file.
#[derive(Debug, Clone)]
pub(super) struct StoredTensor {
    /// The name in the file.
    pub(super) name: String,
    /// The type of its elements.
    pub(super) dtype: Dtype,
    /// Its shape.
    pub(super) shape: Vec<usize>,
    /// The offset of its first element in the file, in bytes.
    pub(super) start: usize,
    /// The distances, in elements, from one index of a dimension to the next; rows are packed where it is none.
    pub(super) strides: Option<Vec<usize>>,
}

impl StoredTensor {
    /// The number of elements. Both readers check that they lie in the file, so this cannot overflow.
    pub(super) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    fn item_size(&self) -> usize {
        self.dtype.bitsize() / 8
    }

    /// Whether the elements lie one after the other.
    fn is_packed(&self) -> bool {
        let Some(strides) = &self.strides else { return true };
        if self.count() == 0 {
            return true;
        }
        let mut packed = 1;
        std::iter::zip(&self.shape, strides).rev().all(|(&size, &stride)| {
            let fits = size <= 1 || stride == packed;
            packed *= size;
            fits
        })
    }

    /// The bytes of the elements in the order of rows, out of those of the file.
    fn bytes<'a>(&self, file: &'a [u8]) -> Cow<'a, [u8]> {
        let (count, item) = (self.count(), self.item_size());
        let strides = match &self.strides {
            Some(strides) if !self.is_packed() => strides,
            _ => return Cow::Borrowed(&file[self.start..self.start + count * item]),
        };
        let mut bytes = Vec::with_capacity(count * item);
        let mut index = vec![0; self.shape.len()];
        for _ in 0..count {
            let offset: usize = std::iter::zip(&index, strides).map(|(at, stride)| at * stride).sum();
            let start = self.start + offset * item;
            bytes.extend_from_slice(&file[start..start + item]);
            for (at, &size) in std::iter::zip(&mut index, &self.shape).rev() {
                *at += 1;
                if *at < size {
                    break;
                }
                *at = 0;
            }
        }
        Cow::Owned(bytes)
    }
}

/// A mapped weight file: safetensors, or PyTorch's.
#[derive(Debug)]
pub(super) struct WeightFile {
    path: PathBuf,
    map: Mmap,
    tensors: Vec<StoredTensor>,
}

impl WeightFile {
    /// Maps `path` and reads where its tensors lie; `expected` names the file where there is none.
    pub(super) fn open(path: &Path, expected: &'static str) -> Result<Self> {
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
        let tensors = if path.extension().is_some_and(|extension| extension == "safetensors") {
            safetensors(path, &map)?
        } else {
            pytorch::tensors(path, &map)?
        };
        Ok(Self { path: path.into(), map, tensors })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn tensors(&self) -> &[StoredTensor] {
        &self.tensors
    }

    /// The elements of a tensor of this file.
    pub(super) fn bytes(&self, tensor: &StoredTensor) -> Cow<'_, [u8]> {
        tensor.bytes(&self.map)
    }

    /// Reads a tensor of this file, and lets go of the pages that it was read from.
    pub(super) fn read(&self, tensor: &StoredTensor, dtype: DType, device: &Device) -> Result<Tensor> {
        let stored = self.dtype(tensor)?;
        let read = Tensor::from_raw_buffer(&self.bytes(tensor), stored, &tensor.shape, device)?;
        if tensor.is_packed() {
            self.release(tensor.start, tensor.count() * tensor.item_size());
        }
        Ok(read.to_dtype(dtype)?)
    }

    /// The type of a tensor, where a model can be made of it.
    pub(super) fn dtype(&self, tensor: &StoredTensor) -> Result<DType> {
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

    /// Lets the pages of a range go, which would stay in memory beside the tensors that were made from them.
    fn release(&self, start: usize, length: usize) {
        // SAFETY: the map is read only and shared with its file, so pages that are let go hold nothing that the
        // file does not; whoever reads them again, in any thread, gets the same bytes from it.
        let released = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, length) };
        if let Err(error) = released {
            tracing::debug!(file = %self.path.display(), %error, "pages were not released");
        }
    }
}

/// The tensors of a safetensors file, in the order in which they lie.
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

/// Tells a file that ends too early from one that is not a safetensors file.
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

/// The size in bytes that a header which is whole asks for.
fn expected_length(bytes: &[u8]) -> Option<u64> {
    let header = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
    let end = usize::try_from(header).ok()?.checked_add(8)?;
    let tensors: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(bytes.get(8..end)?).ok()?;
    let ends = tensors.values().filter_map(|tensor| tensor["data_offsets"][1].as_u64());
    Some((end as u64).saturating_add(ends.max()?))
}

#[cfg(test)]
mod tests {
    use safetensors::Dtype;

    use super::StoredTensor;

    fn tensor(shape: &[usize], strides: &[usize]) -> StoredTensor {
        let (name, shape, strides) = ("w".into(), shape.to_vec(), Some(strides.to_vec()));
        StoredTensor { name, dtype: Dtype::I16, shape, start: 1, strides }
    }

    #[test]
    fn a_transposed_tensor_is_read_in_the_order_of_rows() {
        let file: Vec<u8> = (0..13).collect();
        // Elements of two bytes from byte 1 on: 1 2 | 3 4 | 5 6 | 7 8 | 9 10 | 11 12.
        let rows = tensor(&[2, 3], &[3, 1]);
        assert_eq!(*rows.bytes(&file), file[1..]);
        let columns = tensor(&[2, 3], &[1, 2]);
        assert!(!columns.is_packed());
        assert_eq!(*columns.bytes(&file), [1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12]);
        // The stride of a dimension of one element says nothing.
        assert!(tensor(&[1, 3], &[77, 1]).is_packed());
        assert_eq!(*tensor(&[1, 3], &[77, 1]).bytes(&file), file[1..7]);
    }
}
