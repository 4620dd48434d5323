//! Rewrites a model folder as safetensors and `tokenizer.json`, from any supported format.

use std::{
    borrow::Cow,
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, tensor::View};

use crate::{
    error::{Error, Result},
    json,
    save::{sync, sync_all},
    sentence::{INPUT_FILES, MODULE_FILES, module_folders},
    weights::StoredModel,
};

/// The files that are copied unchanged.
const COMPANIONS: [&str; 9] = [
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "modules.json",
    "config_sentence_transformers.json",
    "README.md",
];

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

/// Writes a checked model into `to`, which must not exist or be empty: its JSON files as they are, its tokenizer as
/// `tokenizer.json`, and the tensors that the model uses as `model.safetensors`, under the model's own names and in the types
/// in which they are stored. Of a [part](crate::Part) nothing but its own config goes along. The folder appears whole or not at
/// all.
///
/// # Errors
/// [`Error::Exists`] where `to` holds something, [`Error::Safetensors`], [`Error::Io`], and those of
/// [`StoredModel::tokenizer`].
pub fn import(model: &StoredModel, to: &Path) -> Result<()> {
    let Some(part) = model.part() else {
        let mut companions: Vec<String> =
            COMPANIONS.into_iter().chain(INPUT_FILES).map(str::to_owned).collect();
        for module in module_folders(model.folder())? {
            companions.extend(MODULE_FILES.map(|file| format!("{module}/{file}")));
        }
        return write(model, &companions, None, to);
    };
    let path = model.folder().join("config.json");
    let text = json::required(&path)?;
    write(model, &[], Some(part.config(&path, &text)?), to)
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

fn write(model: &StoredModel, companions: &[String], config: Option<String>, to: &Path) -> Result<()> {
    appear(to, |folder| {
        for name in companions {
            let from = model.folder().join(name);
            if from.exists() {
                let into = folder.join(name);
                if let Some(parent) = into.parent() {
                    fs::create_dir_all(parent).map_err(Error::io(parent, "create"))?;
                }
                fs::copy(&from, &into).map_err(Error::io(&from, "copy"))?;
            }
        }
        if let Some(config) = config {
            let path = folder.join("config.json");
            fs::write(&path, config).map_err(Error::io(&path, "write"))?;
        }
        let path = folder.join("tokenizer.json");
        fs::write(&path, model.tokenizer()?.json()).map_err(Error::io(&path, "write"))?;
        weights(model, &folder.join("model.safetensors"))
    })
}

fn weights(model: &StoredModel, path: &Path) -> Result<()> {
    let raw = |(name, dtype, shape, bytes)| (name, Raw { dtype, shape, bytes });
    write_weights(model.raw_tensors().map(raw).collect::<Vec<(String, Raw<'_>)>>(), path)
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
