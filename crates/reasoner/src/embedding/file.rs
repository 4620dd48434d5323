//! Tensor files: safetensors, written as a stream and memory-mapped.

use std::{collections::BTreeMap, fs::File, ops::Range, path::Path, sync::Arc};

use half::f16;
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use sporran_kilt::jsonl;

use super::table::{EntityTable, Rows};
use crate::{Error, Result};

/// The values of a tensor to write.
pub(crate) enum Data<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    /// 32-bit values that are written in 16 bits.
    Halved(&'a [f32]),
}

impl<'a> Data<'a> {
    /// The values of a table in memory; in 16 bits if `half`.
    pub(crate) fn of(rows: &'a Rows, half: bool) -> Option<Self> {
        match rows {
            Rows::F32(values) if half => Some(Self::Halved(values)),
            Rows::F32(values) => Some(Self::F32(values)),
            Rows::F16(values) => Some(Self::F16(values)),
            Rows::Mapped { .. } => None,
        }
    }

    fn is_half(&self) -> bool {
        !matches!(self, Self::F32(_))
    }

    fn len(&self) -> usize {
        match self {
            Self::F32(values) | Self::Halved(values) => values.len(),
            Self::F16(values) => values.len(),
        }
    }
}

/// Writes a file atomically. The same tensors give the same bytes.
pub(crate) fn write(
    path: &Path,
    metadata: &BTreeMap<String, String>,
    tensors: &[(String, Vec<usize>, Data<'_>)],
) -> Result<()> {
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), serde_json::json!(metadata));
    }
    let mut end = 0;
    for (name, shape, data) in tensors {
        let start = end;
        end += data.len() * if data.is_half() { 2 } else { 4 };
        let dtype = if data.is_half() { "F16" } else { "F32" };
        let entry = serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] });
        header.insert(name.clone(), entry);
    }
    let mut header = serde_json::Value::Object(header).to_string().into_bytes();
    // The values start at a multiple of 8.
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut writer = jsonl::Writer::create(path)?;
    writer.bytes(&(header.len() as u64).to_le_bytes())?;
    writer.bytes(&header)?;
    let mut buffer = Vec::new();
    let mut put = |part: &mut dyn Iterator<Item = u8>| {
        buffer.clear();
        buffer.extend(part);
        writer.bytes(&buffer)
    };
    const PART: usize = 1 << 16;
    for (_, _, data) in tensors {
        match data {
            Data::F32(values) => {
                for part in values.chunks(PART) {
                    put(&mut part.iter().flat_map(|value| value.to_le_bytes()))?;
                }
            }
            Data::Halved(values) => {
                for part in values.chunks(PART) {
                    put(&mut part.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()))?;
                }
            }
            Data::F16(values) => {
                for part in values.chunks(PART) {
                    put(&mut part.iter().flat_map(|value| value.to_le_bytes()))?;
                }
            }
        }
    }
    Ok(writer.finish()?)
}

/// A memory-mapped file of tensors.
pub(crate) struct Mapped {
    path: std::path::PathBuf,
    map: Arc<Mmap>,
    metadata: BTreeMap<String, String>,
    /// The shape of each tensor, whether it is in 16 bits, and its bytes.
    tensors: BTreeMap<String, (Vec<usize>, bool, Range<usize>)>,
}

impl Mapped {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| sporran_kilt::Error::io(path, "open", source))?;
        // SAFETY: the file is written once under another name and then renamed. Nothing changes it in place.
        let map =
            unsafe { Mmap::map(&file) }.map_err(|source| sporran_kilt::Error::io(path, "read", source))?;
        let wrong = |message: String| Error::Model { path: path.to_owned(), message };
        let parsed = SafeTensors::deserialize(&map).map_err(|error| wrong(error.to_string()))?;
        let (_, header) = SafeTensors::read_metadata(&map).map_err(|error| wrong(error.to_string()))?;
        let metadata = header.metadata().clone().unwrap_or_default().into_iter().collect();
        let mut tensors = BTreeMap::new();
        for (name, view) in parsed.tensors() {
            let half = match view.dtype() {
                Dtype::F32 => false,
                Dtype::F16 => true,
                other => return Err(wrong(format!("`{name}`: expected F32 or F16, found {other:?}"))),
            };
            let start = view.data().as_ptr() as usize - map.as_ptr() as usize;
            let bytes = start..start + view.data().len();
            tensors.insert(name, (view.shape().to_vec(), half, bytes));
        }
        Ok(Self { path: path.to_owned(), map: Arc::new(map), metadata, tensors })
    }

    pub(crate) fn metadata(&self, key: &str) -> Result<&str> {
        self.metadata
            .get(key)
            .map(String::as_str)
            .ok_or_else(|| Error::Model { path: self.path.clone(), message: format!("has no `{key}`") })
    }

    fn tensor(&self, name: &str, shape: [usize; 2]) -> Result<(bool, Range<usize>)> {
        let wrong = |message| Error::Model { path: self.path.clone(), message };
        let Some((found, half, bytes)) = self.tensors.get(name) else {
            return Err(wrong(format!("expected a tensor `{name}` of shape {shape:?}, found none")));
        };
        if found != &shape {
            return Err(wrong(format!("`{name}`: expected shape {shape:?}, found {found:?}")));
        }
        Ok((*half, bytes.clone()))
    }

    /// Copies the values of a tensor.
    pub(crate) fn values(&self, name: &str, shape: [usize; 2]) -> Result<Vec<f32>> {
        let (half, bytes) = self.tensor(name, shape)?;
        let bytes = &self.map[bytes];
        Ok(if half {
            bytes.as_chunks::<2>().0.iter().map(|value| f16::from_le_bytes(*value).to_f32()).collect()
        } else {
            bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
        })
    }

    /// Copies the values of a 16-bit tensor.
    pub(crate) fn halves(&self, name: &str, shape: [usize; 2]) -> Result<Vec<f16>> {
        let (half, bytes) = self.tensor(name, shape)?;
        if !half {
            let message = format!("`{name}`: expected F16, found F32");
            return Err(Error::Model { path: self.path.clone(), message });
        }
        Ok(self.map[bytes].as_chunks::<2>().0.iter().map(|value| f16::from_le_bytes(*value)).collect())
    }

    /// A table that stays memory-mapped.
    pub(crate) fn table(&self, name: &str, shape: [usize; 2]) -> Result<EntityTable> {
        let (half, bytes) = self.tensor(name, shape)?;
        let rows = Rows::Mapped { map: Arc::clone(&self.map), bytes, half };
        Ok(EntityTable::new(shape[0], shape[1], rows))
    }
}
