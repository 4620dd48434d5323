//! The folders of adapters of LoRA in PEFT's layout: `adapter_config.json`, and `adapter_model.safetensors` or
//! `adapter_model.bin`.

mod config;

use std::path::{Path, PathBuf};

use crate::{
    error::{Error, Result},
    json::{self, parse},
};
pub(crate) use config::{AdapterConfig, ends_with};

pub(crate) const CONFIG: &str = "adapter_config.json";
pub(crate) const WEIGHTS: [&str; 2] = ["adapter_model.safetensors", "adapter_model.bin"];

/// An adapter's folder, with its config read and checked.
#[derive(Debug)]
pub struct Adapter {
    pub(crate) folder: PathBuf,
    pub(crate) config: AdapterConfig,
}

impl Adapter {
    /// Whether a folder holds an adapter.
    #[must_use]
    pub fn is_in(folder: &Path) -> bool {
        folder.join(CONFIG).is_file() && WEIGHTS.iter().any(|file| folder.join(file).is_file())
    }

    /// Whether a folder holds an adapter in place of a model, which has a `config.json`.
    #[must_use]
    pub fn is_alone_in(folder: &Path) -> bool {
        Self::is_in(folder) && !folder.join("config.json").exists()
    }

    /// Reads the config of an adapter of LoRA.
    ///
    /// # Errors
    /// [`Error::MissingFile`], [`Error::Json`], and [`Error::Config`] for another kind of adapter, which is named.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(CONFIG);
        let text = json::text(&path)?
            .ok_or_else(|| Error::MissingFile { folder: folder.into(), expected: CONFIG })?;
        let config: AdapterConfig = parse(&path, &text)?;
        config.check(&path)?;
        Ok(Self { folder: folder.into(), config })
    }

    /// The base model, where it is a folder: a path, a path from the adapter's folder, or the name of an imported model.
    ///
    /// # Errors
    /// [`Error::MissingBase`] where there is no such folder, [`Error::Config`] where the config names none.
    pub fn local_base(&self) -> Result<PathBuf> {
        let missing =
            |base: &str| Error::MissingBase { path: self.folder.join(CONFIG), base: base.to_owned() };
        self.base_folder()?.map_or_else(|| Err(missing(self.base_name()?)), Ok)
    }

    pub(crate) fn base_name(&self) -> Result<&str> {
        let name = self.config.base_model_name_or_path.as_deref().filter(|base| !base.is_empty());
        name.ok_or_else(|| Error::Config {
            path: self.folder.join(CONFIG),
            field: "base_model_name_or_path".into(),
            expected: "the adapter's base model; its folder can be given by `--base`".into(),
            found: "none".into(),
        })
    }

    pub(crate) fn base_folder(&self) -> Result<Option<PathBuf>> {
        let base = Path::new(self.base_name()?);
        let imported = (base.components().count() == 1).then(|| Path::new("models").join(base));
        let folders = [base.to_owned(), self.folder.join(base)].into_iter().chain(imported);
        Ok(folders.into_iter().find(|folder| folder.join("config.json").is_file()))
    }
}
