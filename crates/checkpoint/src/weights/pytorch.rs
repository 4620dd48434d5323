//! PyTorch weight files: the archives that `torch.save` writes since PyTorch 1.6, and the plain files from before.
//!
//! Both hold a pickle that says which storage each tensor is a view of, and the storages as raw bytes.

use std::{collections::HashMap, io::Cursor, path::Path};

use zip::{CompressionMethod, ZipArchive};

use super::{
    pickle::{self, Fault, StateDict, Storage},
    tensor::StoredTensor,
};
use crate::error::{Error, Result};

/// The pickled number that begins a plain file.
const MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

/// The tensors of the file `path`, whose bytes are `bytes`.
pub(super) fn tensors(path: &Path, bytes: &[u8]) -> Result<Vec<StoredTensor>> {
    if bytes.starts_with(b"PK") { archive(path, bytes) } else { plain(path, bytes) }
}

/// An archive of uncompressed records: `<name>/data.pkl`, and `<name>/data/<key>` for each storage.
fn archive(path: &Path, bytes: &[u8]) -> Result<Vec<StoredTensor>> {
    let wrong = |source| Error::Archive { path: path.into(), source };
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(wrong)?;
    let mut records: HashMap<String, (usize, usize)> = HashMap::new();
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(wrong)?;
        let name = entry.name().map_err(wrong)?.into_owned();
        if entry.compression() != CompressionMethod::Stored || entry.encrypted() {
            return Err(unlike(path, format!("the record `{name}` uncompressed"), "a compressed one"));
        }
        let place = entry.data_start().and_then(|start| {
            let start = usize::try_from(start).ok()?;
            let end = start.checked_add(usize::try_from(entry.size()).ok()?)?;
            (end <= bytes.len()).then_some((start, end))
        });
        let place = place.ok_or_else(|| unlike(path, format!("the record `{name}`"), "the end"))?;
        records.insert(name, place);
    }
    let mut pickles: Vec<_> =
        records.iter().filter_map(|(name, place)| Some((name.strip_suffix("data.pkl")?, *place))).collect();
    let Some((folder, (start, end))) = pickles.pop().filter(|_| pickles.is_empty()) else {
        return Err(unlike(path, "one record `data.pkl`", format!("{}", pickles.len())));
    };
    if let Some(&(start, end)) = records.get(&format!("{folder}byteorder"))
        && &bytes[start..end] != b"little"
    {
        return Err(unlike(path, "little-endian storages", "another order of bytes"));
    }
    let (dict, _) =
        pickle::state_dict(&bytes[start..end]).map_err(|fault| wrong_pickle(path, start, fault))?;
    let place = |storage: &Storage| {
        let name = format!("{folder}data/{}", storage.key);
        let (start, end) =
            *records.get(&name).ok_or_else(|| unlike(path, format!("the record `{name}`"), "none"))?;
        let size = storage.count.checked_mul(storage.dtype.bitsize() / 8);
        if size.is_none_or(|size| size > end - start) {
            let expected = format!("{} elements in the record `{name}`", storage.count);
            return Err(unlike(path, expected, format!("{} bytes", end - start)));
        }
        Ok(start)
    };
    let starts: Vec<usize> = dict.storages.iter().map(place).collect::<Result<_>>()?;
    Ok(placed(dict, &starts))
}

/// A number, the version, a description of the machine, the dictionary, the keys of the storages, and then each
/// storage after its number of elements.
fn plain(path: &Path, bytes: &[u8]) -> Result<Vec<StoredTensor>> {
    if !bytes.starts_with(MAGIC) {
        return Err(unlike(path, "a file that PyTorch wrote", "another"));
    }
    let mut at = MAGIC.len();
    for _ in ["version", "machine"] {
        at += pickle::skip(&bytes[at..]).map_err(|fault| wrong_pickle(path, at, fault))?;
    }
    let (dict, length) = pickle::state_dict(&bytes[at..]).map_err(|fault| wrong_pickle(path, at, fault))?;
    at += length;
    let (keys, length) = pickle::texts(&bytes[at..]).map_err(|fault| wrong_pickle(path, at, fault))?;
    at += length;
    let by_key: HashMap<&str, usize> =
        dict.storages.iter().enumerate().map(|(index, storage)| (storage.key.as_str(), index)).collect();
    let mut starts = vec![None; dict.storages.len()];
    for key in &keys {
        let missing = || unlike(path, format!("the storage `{key}`"), "the end");
        let &index = by_key
            .get(key.as_str())
            .ok_or_else(|| unlike(path, "storages that tensors use", format!("`{key}`")))?;
        let storage = &dict.storages[index];
        let count = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()).ok_or_else(missing)?;
        let count = u64::from_le_bytes(*count);
        if count != storage.count as u64 {
            let expected = format!("{} elements in the storage `{key}`", storage.count);
            return Err(unlike(path, expected, count.to_string()));
        }
        starts[index] = Some(at + 8);
        let size = storage.count.checked_mul(storage.dtype.bitsize() / 8);
        let end = size.and_then(|size| size.checked_add(at + 8)).filter(|end| *end <= bytes.len());
        at = end.ok_or_else(missing)?;
    }
    let starts: Option<Vec<usize>> = starts.into_iter().collect();
    let starts = starts.ok_or_else(|| unlike(path, "every storage that a tensor uses", "some of them"))?;
    Ok(placed(dict, &starts))
}

/// The tensors of `dict`, whose storages begin at `starts`.
fn placed(dict: StateDict, starts: &[usize]) -> Vec<StoredTensor> {
    let place = |(name, view): (String, pickle::View)| {
        let dtype = dict.storages[view.storage].dtype;
        // The view lies inside its storage and the storage inside the file, so this cannot overflow.
        let start = starts[view.storage] + view.offset * (dtype.bitsize() / 8);
        StoredTensor { name, dtype, shape: view.shape, start, strides: Some(view.strides) }
    };
    dict.tensors.into_iter().map(place).collect()
}

fn unlike(path: &Path, expected: impl Into<String>, found: impl Into<String>) -> Error {
    Error::Pytorch { path: path.into(), expected: expected.into(), found: found.into() }
}

fn wrong_pickle(path: &Path, start: usize, fault: Fault) -> Error {
    Error::Pickle {
        path: path.into(),
        at: (start + fault.at) as u64,
        expected: fault.expected,
        found: fault.found,
    }
}
