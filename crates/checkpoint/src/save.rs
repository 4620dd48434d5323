//! Writing a model folder.

use std::{
    borrow::Cow,
    collections::HashMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::PoisonError,
};

use candle_core::{DType, Tensor};
use candle_nn::VarMap;
use safetensors::{
    Dtype,
    tensor::{TensorView, View},
};

use crate::{
    architecture::Architecture,
    error::{Error, Result},
    tokenizer::Tokenizer,
};

/// Writes `config.json`, `tokenizer.json` and `model.safetensors` (in `dtype`, F32 or F16) into `folder`, which is
/// made where it does not exist. Each file is written under another name and renamed, the weights last, so a
/// folder never holds half a file. The same weights give the same bytes, and `transformers` can open the folder.
///
/// # Errors
/// [`Error::Dtype`] for another dtype, [`Error::MissingTensor`] or [`Error::TensorShape`] where `weights` are not
/// those of `config`, and [`Error::Io`].
pub fn save<C: AsRef<dyn Architecture>>(
    folder: &Path,
    config: &C,
    weights: &VarMap,
    tokenizer: &Tokenizer,
    dtype: DType,
) -> Result<()> {
    let config = config.as_ref();
    let stored = match dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        found => return Err(Error::Dtype { expected: "F32 or F16", found }),
    };
    let path = folder.join("model.safetensors");
    let mut parts: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    {
        let weights = weights.data().lock().unwrap_or_else(PoisonError::into_inner);
        for parameter in config.parameters()? {
            let (path, tensor, expected) = (path.clone(), parameter.name, parameter.shape);
            let Some(var) = weights.get(&tensor) else {
                return Err(Error::MissingTensor { path, tensor, expected });
            };
            if var.shape() != &expected {
                return Err(Error::TensorShape { path, tensor, expected, found: var.shape().clone() });
            }
            parts.push((tensor, expected.dims().to_vec(), tensor_bytes(var.as_tensor(), dtype)?));
        }
    }
    let wrong = |source| Error::Safetensors { path: path.clone(), source };
    let mut views = Vec::with_capacity(parts.len());
    for (name, shape, bytes) in &parts {
        views.push((name.as_str(), TensorView::new(stored, shape.clone(), bytes).map_err(wrong)?));
    }
    // `transformers` refuses a file that does not say which framework's layout it has.
    let layout = HashMap::from([("format".to_string(), "pt".to_string())]);
    let model = safetensors::serialize(views, Some(layout)).map_err(wrong)?;

    let mut json = serde_json::to_string_pretty(&config.to_json()).map_err(|source| Error::Json {
        path: folder.join("config.json"),
        field: ".".into(),
        source,
    })?;
    json.push('\n');
    std::fs::create_dir_all(folder).map_err(Error::io(folder, "create"))?;
    write(folder, "config.json", json.as_bytes())?;
    write(folder, "tokenizer.json", tokenizer.json().as_bytes())?;
    write(folder, "model.safetensors", &model)
}

/// The values of a tensor in `dtype`, F16, BF16 or else F32, in the order of rows and of little-endian bytes.
///
/// # Errors
/// A tensor error.
pub fn tensor_bytes(tensor: &Tensor, dtype: DType) -> Result<Vec<u8>> {
    let tensor = tensor.to_dtype(dtype)?.flatten_all()?;
    Ok(match dtype {
        DType::F16 => tensor.to_vec1::<half::f16>()?.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DType::BF16 => tensor.to_vec1::<half::bf16>()?.iter().flat_map(|value| value.to_le_bytes()).collect(),
        _ => tensor.to_vec1::<f32>()?.iter().flat_map(|value| value.to_le_bytes()).collect(),
    })
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = folder.join(name);
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(Error::io(&path, "create"))?;
    file.write_all(bytes).map_err(Error::io(&path, "write"))?;
    file.as_file().sync_all().map_err(Error::io(&path, "write"))?;
    file.persist(&path).map_err(|error| Error::io(&path, "rename")(error.error))?;
    sync(folder)
}

/// Waits until a file, or the names of a folder's files, are on disk. A rename outlasts a power failure only then.
/// File systems that cannot sync folders are left as they are.
///
/// # Errors
/// [`Error::Io`] if the system refuses.
pub fn sync(path: &Path) -> Result<()> {
    use std::io::ErrorKind;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let is_folder = path.is_dir();
    // Only there can a folder be opened as a file.
    if is_folder && !cfg!(unix) {
        return Ok(());
    }
    match std::fs::File::open(path).and_then(|file| file.sync_all()) {
        Err(error)
            if !is_folder || !matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) =>
        {
            Err(Error::io(path, "sync")(error))
        }
        _ => Ok(()),
    }
}

/// As [`sync`], for a folder with all that is in it.
///
/// # Errors
/// As for [`sync`].
fn sync_all(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder, "read"))? {
        let path = entry.map_err(Error::io(folder, "read"))?.path();
        if path.is_dir() { sync_all(&path)? } else { sync(&path)? }
    }
    sync(folder)
}

/// Creates the folder `to`, which must not exist or be empty, with the files that `fill` writes: whole or not at all.
///
/// # Errors
/// [`Error::Exists`] where `to` holds something, [`Error::Io`], and those of `fill`.
pub fn appear(to: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    match fs::read_dir(to) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(Error::Exists { path: to.into() });
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io(to, "read")(error)),
    }
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(Error::io(parent, "create"))?;
    let scratch = tempfile::Builder::new().prefix(".import-").tempdir_in(parent);
    let scratch = scratch.map_err(Error::io(parent, "create"))?;
    let folder = scratch.path();
    fill(folder)?;
    sync_all(folder)?;
    if to.exists() {
        fs::remove_dir(to).map_err(Error::io(to, "remove"))?;
    }
    fs::rename(folder, to).map_err(Error::io(to, "rename"))?;
    // The folder that would be removed is the one that has its name now.
    let _: PathBuf = scratch.keep();
    sync(parent)
}

/// A tensor in its stored bytes, written without conversion.
pub(crate) struct Raw<'a> {
    pub(crate) dtype: Dtype,
    pub(crate) shape: &'a [usize],
    pub(crate) bytes: Cow<'a, [u8]>,
}

impl View for Raw<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes tensors as the safetensors file `path`.
pub(crate) fn write_weights<N: AsRef<str> + Ord + std::fmt::Display>(
    tensors: Vec<(N, Raw<'_>)>,
    path: &Path,
) -> Result<()> {
    // `transformers` refuses a file that does not say which framework's layout it has.
    let layout = HashMap::from([("format".to_string(), "pt".to_string())]);
    safetensors::serialize_to_file(tensors, Some(layout), path)
        .map_err(|source| Error::Safetensors { path: path.into(), source })
}
