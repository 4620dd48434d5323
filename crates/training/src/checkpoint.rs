//! Snapshots of a training: weights, optimiser and position, written so that a kill at any moment leaves either the
//! old or the new one, whole.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use safetensors::{Dtype, tensor::TensorView};
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{Error, Result, tensor_bytes};

use crate::{optimizer::AdamW, options::TrainingOptions};

/// The position of a training. Together with the weights and the moments it determines all later steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Position {
    /// Optimiser steps made.
    pub step: u64,
    /// The epoch that the next batch is taken from.
    pub epoch: u64,
    /// Batches of that epoch that were used.
    pub batch: usize,
    /// The best dev score with its step, where there was an evaluation.
    pub best: Option<(u64, f64)>,
    /// Evaluations since the best one.
    pub since_best: u64,
    /// The options that the training runs with; a snapshot of other options is not gone on from.
    pub options: TrainingOptions,
}

const WEIGHTS: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const POSITION: &str = "position.json";
const TOKENIZER: &str = "tokenizer.json";

/// Files that are written next to the weights, such as `config.json` and `tokenizer.json`, so that a snapshot is a model
/// folder: names with their bytes.
pub type ExtraFiles = [(String, Vec<u8>)];

/// The folder of snapshot `kind` (`checkpoint` or `best`) at `step`.
fn folder_of(root: &Path, kind: &str, step: u64) -> PathBuf {
    root.join(format!("{kind}-{step:08}"))
}

/// The snapshots of a kind under `root` with their steps, oldest first. Unfinished ones have another name.
pub(crate) fn snapshots(root: &Path, kind: &str) -> Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(Error::io(root, "read")(error)),
    };
    for entry in entries {
        let path = entry.map_err(Error::io(root, "read"))?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let step = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-')).map(str::parse);
        if let Some(Ok(step)) = step {
            found.push((step, path));
        }
    }
    found.sort();
    Ok(found)
}

/// Writes `files` and `tensors` as a folder atomically: a temporary folder in the same parent, synced and renamed.
fn write_folder(
    folder: &Path,
    tensors: &[(&str, BTreeMap<String, Tensor>)],
    files: &[(&str, &[u8])],
) -> Result<()> {
    // The parent of a bare name is an empty path.
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(Error::io(parent, "create"))?;
    let temporary = tempfile::Builder::new()
        .prefix(".unfinished-")
        .tempdir_in(parent)
        .map_err(Error::io(parent, "create a folder in"))?;
    let sync = |path: &Path| -> Result<()> {
        fs::File::open(path).and_then(|f| f.sync_all()).map_err(Error::io(path, "sync"))
    };
    for (name, map) in tensors {
        let path = temporary.path().join(name);
        write_tensors(&path, map)?;
        sync(&path)?;
    }
    for (name, bytes) in files {
        let path = temporary.path().join(name);
        let mut file = fs::File::create(&path).map_err(Error::io(&path, "create"))?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::io(&path, "write"))?;
    }
    sporran_checkpoint::sync(temporary.path())?;
    // A folder cannot be renamed over another that has files, so an old one of the same name makes way first.
    let old = temporary.path().with_extension("old");
    if folder.exists() {
        fs::rename(folder, &old).map_err(Error::io(folder, "rename"))?;
    }
    fs::rename(temporary.keep(), folder).map_err(Error::io(folder, "rename"))?;
    if old.exists() {
        fs::remove_dir_all(&old).map_err(Error::io(&old, "remove"))?;
    }
    sporran_checkpoint::sync(parent)
}

/// Writes tensors of one type, F32 or F16, as a safetensors file that `transformers` can open too.
fn write_tensors(path: &Path, tensors: &BTreeMap<String, Tensor>) -> Result<()> {
    let mut parts = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let stored = match tensor.dtype() {
            DType::F32 => Dtype::F32,
            DType::F16 => Dtype::F16,
            found => return Err(Error::Dtype { expected: "F32 or F16", found }),
        };
        parts.push((name, stored, tensor.dims().to_vec(), tensor_bytes(tensor, tensor.dtype())?));
    }
    let wrong = |source| Error::Safetensors { path: path.into(), source };
    let mut views = Vec::with_capacity(parts.len());
    for (name, stored, shape, data) in &parts {
        views.push((name.as_str(), TensorView::new(*stored, shape.clone(), data).map_err(wrong)?));
    }
    // `transformers` refuses a file that does not say which framework's layout it has.
    let layout = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let data = safetensors::serialize(views, Some(layout)).map_err(wrong)?;
    fs::write(path, data).map_err(Error::io(path, "write"))
}

/// Removes all snapshots of a kind but the newest.
fn keep_newest(root: &Path, kind: &str) -> Result<()> {
    let mut all = snapshots(root, kind)?;
    all.pop();
    for (_, path) in all {
        fs::remove_dir_all(&path).map_err(Error::io(&path, "remove"))?;
    }
    Ok(())
}

fn weights(optimizer: &AdamW) -> BTreeMap<String, Tensor> {
    optimizer.variables().map(|(name, var)| (name.to_owned(), var.as_tensor().clone())).collect()
}

/// Writes everything that a training needs to go on, and removes the snapshot before it.
pub(crate) fn save(
    root: &Path,
    optimizer: &AdamW,
    position: &Position,
    extra_files: &ExtraFiles,
) -> Result<()> {
    let folder = folder_of(root, "checkpoint", position.step);
    // The position holds only numbers and a string, which JSON can always express.
    let json = serde_json::to_vec_pretty(position).map_err(|source| Error::Json {
        path: folder.join(POSITION),
        field: ".".into(),
        source,
    })?;
    let mut files: Vec<(&str, &[u8])> = extra_files.iter().map(|(n, b)| (n.as_str(), b.as_slice())).collect();
    files.push((POSITION, &json));
    write_folder(&folder, &[(WEIGHTS, weights(optimizer)), (OPTIMIZER, optimizer.state()?)], &files)?;
    keep_newest(root, "checkpoint")
}

/// Writes the weights as the best so far, and removes the best before.
pub(crate) fn save_best(root: &Path, optimizer: &AdamW, step: u64, extra_files: &ExtraFiles) -> Result<()> {
    let files: Vec<(&str, &[u8])> = extra_files.iter().map(|(n, b)| (n.as_str(), b.as_slice())).collect();
    write_folder(&folder_of(root, "best", step), &[(WEIGHTS, weights(optimizer))], &files)?;
    keep_newest(root, "best")
}

/// The folder of the best weights so far, if any.
///
/// # Errors
/// [`Error::Io`] where `root` cannot be read.
pub fn best_folder(root: &Path) -> Result<Option<PathBuf>> {
    Ok(snapshots(root, "best")?.pop().map(|(_, path)| path))
}

/// Puts the newest checkpoint under `root` into the optimiser and its variables; `None` where there is none.
///
/// # Errors
/// Where a file cannot be read or does not fit; [`Error::Config`] where the checkpoint was made with another tokenizer than that
/// in `extra_files`, for example one that was trained on other texts.
pub(crate) fn restore(
    root: &Path,
    optimizer: &mut AdamW,
    extra_files: &ExtraFiles,
) -> Result<Option<Position>> {
    let Some((_, folder)) = snapshots(root, "checkpoint")?.pop() else {
        return Ok(None);
    };
    for (name, bytes) in extra_files.iter().filter(|(name, _)| name == TOKENIZER) {
        let path = folder.join(name);
        if fs::read(&path).map_err(Error::io(&path, "read"))? != *bytes {
            let expected = "the tokenizer that the training would begin with now".into();
            let found = "another; a training over other texts needs another folder".into();
            return Err(Error::Config { path, field: "model.vocab".into(), expected, found });
        }
    }
    let path = folder.join(POSITION);
    let bytes = fs::read(&path).map_err(Error::io(&path, "read"))?;
    let position: Position = serde_json::from_slice(&bytes).map_err(|source| Error::Json {
        path: path.clone(),
        field: ".".into(),
        source,
    })?;
    let load = |name: &str| -> Result<BTreeMap<String, Tensor>> {
        let path = folder.join(name);
        fs::metadata(&path).map_err(Error::io(&path, "read"))?;
        Ok(candle_core::safetensors::load(&path, &Device::Cpu)?.into_iter().collect())
    };
    let saved = load(WEIGHTS)?;
    for (name, var) in optimizer.variables() {
        let (path, tensor, expected) = (folder.join(WEIGHTS), name.to_string(), var.shape().clone());
        match saved.get(name) {
            Some(saved) if *saved.shape() == expected => {}
            Some(saved) => {
                return Err(Error::TensorShape { path, tensor, expected, found: saved.shape().clone() });
            }
            None => return Err(Error::MissingTensor { path, tensor, expected }),
        }
    }
    optimizer.restore(&load(OPTIMIZER)?, position.step)?;
    for (name, var) in optimizer.variables() {
        var.set(&saved[name].to_device(var.device())?)?;
    }
    Ok(Some(position))
}

/// Converts the weights of a snapshot to `dtype` and writes them with `extra_files` into the folder `to`.
///
/// # Errors
/// [`Error::Io`] where a file cannot be read or written; a tensor error where the weights are not safetensors.
pub fn export(snapshot: &Path, to: &Path, dtype: DType, extra_files: &ExtraFiles) -> Result<()> {
    export_part(snapshot, "", to, dtype, extra_files)
}

/// The same of the tensors whose names begin with `prefix`, which they lose: one of several models that were trained
/// together.
///
/// # Errors
/// As for [`export`].
pub fn export_part(
    snapshot: &Path,
    prefix: &str,
    to: &Path,
    dtype: DType,
    extra_files: &ExtraFiles,
) -> Result<()> {
    let path = snapshot.join(WEIGHTS);
    fs::metadata(&path).map_err(Error::io(&path, "read"))?;
    let mut tensors = BTreeMap::new();
    for (name, tensor) in candle_core::safetensors::load(&path, &Device::Cpu)? {
        if let Some(name) = name.strip_prefix(prefix) {
            tensors.insert(name.to_owned(), tensor.to_dtype(dtype)?);
        }
    }
    let files: Vec<(&str, &[u8])> = extra_files.iter().map(|(n, b)| (n.as_str(), b.as_slice())).collect();
    write_folder(to, &[(WEIGHTS, tensors)], &files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::AdamWConfig;
    use candle_core::Var;

    fn optimizer(value: f32) -> AdamW {
        let var = Var::from_tensor(&Tensor::full(value, (2, 3), &Device::Cpu).unwrap()).unwrap();
        AdamW::new([("w".to_owned(), var)], AdamWConfig::default()).unwrap()
    }

    fn position(step: u64) -> Position {
        let options = TrainingOptions::default();
        Position { step, epoch: 1, batch: 7, best: Some((2, 0.5)), since_best: 0, options }
    }

    fn value(optimizer: &AdamW) -> f32 {
        optimizer.variables().next().unwrap().1.flatten_all().unwrap().to_vec1::<f32>().unwrap()[0]
    }

    #[test]
    fn the_newest_checkpoint_is_restored_and_older_ones_are_gone() {
        let root = tempfile::tempdir().unwrap();
        save(root.path(), &optimizer(1.0), &position(5), &[]).unwrap();
        save(root.path(), &optimizer(2.0), &position(10), &[]).unwrap();
        let mut fresh = optimizer(0.0);
        assert_eq!(restore(root.path(), &mut fresh, &[]).unwrap(), Some(position(10)));
        assert_eq!((value(&fresh), fresh.step_count()), (2.0, 10));
        assert_eq!(snapshots(root.path(), "checkpoint").unwrap().len(), 1);
    }

    #[test]
    fn a_checkpoint_of_another_tokenizer_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let tokenizer = |text: &str| [(TOKENIZER.to_owned(), text.as_bytes().to_vec())];
        save(root.path(), &optimizer(1.0), &position(5), &tokenizer("{}")).unwrap();
        assert!(restore(root.path(), &mut optimizer(0.0), &tokenizer("{}")).unwrap().is_some());
        let found = restore(root.path(), &mut optimizer(0.0), &tokenizer("{\"a\": 1}")).unwrap_err();
        assert!(matches!(found, Error::Config { .. }), "{found}");
    }

    #[test]
    fn an_unfinished_folder_is_not_a_checkpoint() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(".unfinished-x")).unwrap();
        assert_eq!(restore(root.path(), &mut optimizer(0.0), &[]).unwrap(), None);
    }

    #[test]
    fn a_checkpoint_of_another_shape_names_the_tensor() {
        let root = tempfile::tempdir().unwrap();
        save(root.path(), &optimizer(1.0), &position(1), &[]).unwrap();
        let var = Var::zeros((3, 3), DType::F32, &Device::Cpu).unwrap();
        let mut other = AdamW::new([("w".to_owned(), var)], AdamWConfig::default()).unwrap();
        let message = restore(root.path(), &mut other, &[]).unwrap_err().to_string();
        assert!(
            message.contains("`w`") && message.contains("[3, 3]") && message.contains("[2, 3]"),
            "{message}"
        );
    }

    #[test]
    fn an_export_has_the_weights_in_the_requested_type_with_its_extra_files() {
        let root = tempfile::tempdir().unwrap();
        save_best(root.path(), &optimizer(1.5), 3, &[]).unwrap();
        let best = best_folder(root.path()).unwrap().unwrap();
        let to = root.path().join("shipped");
        export(&best, &to, DType::F16, &[("config.json".into(), b"{}".to_vec())]).unwrap();
        let tensors = candle_core::safetensors::load(to.join(WEIGHTS), &Device::Cpu).unwrap();
        assert_eq!(tensors["w"].dtype(), DType::F16);
        assert_eq!(fs::read(to.join("config.json")).unwrap(), b"{}");
        let names = |prefix: &str| {
            export_part(&best, prefix, &to, DType::F32, &[]).unwrap();
            let tensors = candle_core::safetensors::load(to.join(WEIGHTS), &Device::Cpu).unwrap();
            tensors.into_keys().collect::<Vec<_>>()
        };
        assert_eq!((names(""), names("v.")), (vec!["w".to_owned()], vec![]));
    }
}
