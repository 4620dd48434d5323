//! `modules.json`: the encoder's folder, and the modules after it.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::{
    error::{Error, Result},
    json::{self, parse},
};

pub(super) const MODULES: &str = "modules.json";
pub(super) const CONFIG: &str = "config.json";

/// Where the classes of modules are in Python. Others have the names of these, and compute something else.
const PACKAGE: &str = "sentence_transformers.";

/// A module of a folder.
#[derive(Debug, Clone, Deserialize)]
pub struct Module {
    /// Its folder inside the model's.
    pub path: String,
    /// Its class in Python, with the path.
    pub r#type: String,
}

impl Module {
    /// The class of a module of sentence-transformers, independent of the version that wrote it.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self.r#type.strip_prefix(PACKAGE) {
            Some(name) => name.rsplit('.').next().unwrap_or_default(),
            None => "",
        }
    }
}

/// The modules of a folder, in their order, with the file that lists them; `None` where there is no such file.
///
/// # Errors
/// Those of reading the file.
pub fn modules(folder: &Path) -> Result<Option<(PathBuf, Vec<Module>)>> {
    let path = folder.join(MODULES);
    let Some(text) = json::text(&path)? else { return Ok(None) };
    let modules = parse(&path, &text)?;
    Ok(Some((path, modules)))
}

/// The error for module `at` of the file `path`.
#[must_use]
pub fn unexpected(path: &Path, at: usize, expected: &str, found: &str) -> Error {
    Error::Config {
        path: path.into(),
        field: format!("[{at}].type"),
        expected: expected.into(),
        found: format!("`{found}`"),
    }
}

/// The folder of the encoder, which is the first module.
///
/// # Errors
/// [`Error::Config`] where it is not.
pub fn encoder_folder(folder: &Path, path: &Path, modules: &[Module]) -> Result<PathBuf> {
    match modules.first() {
        Some(module) if ["Transformer", "StaticEmbedding"].contains(&module.kind()) => {
            Ok(folder.join(&module.path))
        }
        found => {
            let found = found.map_or("none", |module| &module.r#type);
            Err(unexpected(path, 0, "sentence-transformers' `Transformer` or `StaticEmbedding` first", found))
        }
    }
}

/// The folder of the encoder in a folder of sentence-transformers; of another folder itself.
///
/// # Errors
/// [`Error::Json`], and [`Error::Config`] where the first module is no encoder.
pub fn encoder_of(folder: &Path) -> Result<PathBuf> {
    match modules(folder)? {
        Some((path, modules)) => encoder_folder(folder, &path, &modules),
        None => Ok(folder.into()),
    }
}

/// The files that the folder of a module may hold.
pub const MODULE_FILES: [&str; 3] = [CONFIG, "model.safetensors", "pytorch_model.bin"];

/// The folders of the modules after the encoder, as `modules.json` names them; none where there is no such file.
///
/// # Errors
/// [`Error::Json`], and [`Error::Config`] for a path that leads out of the model's folder.
pub fn module_folders(folder: &Path) -> Result<Vec<String>> {
    let Some((path, modules)) = modules(folder)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (at, module) in modules.into_iter().enumerate().skip(1).filter(|(_, module)| !module.path.is_empty())
    {
        if !Path::new(&module.path).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(Error::Config {
                path,
                field: format!("[{at}].path"),
                expected: "a folder inside the model's".into(),
                found: format!("`{}`", module.path),
            });
        }
        found.push(module.path);
    }
    Ok(found)
}

/// The `config.json` of a module's folder, with its path.
///
/// # Errors
/// [`Error::MissingFile`], and those of reading it.
pub fn module_config(folder: &Path) -> Result<(PathBuf, String)> {
    let path = folder.join(CONFIG);
    match json::text(&path)? {
        Some(text) => Ok((path, text)),
        None => Err(Error::MissingFile { folder: folder.into(), expected: CONFIG }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    const MODULES: &str = r#"[{"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]"#;

    #[test]
    fn folders_of_modules_lie_inside_the_model_s() {
        let folders = |text: &str| {
            let folder = tempfile::TempDir::new().unwrap();
            fs::write(folder.path().join("modules.json"), text).unwrap();
            super::module_folders(folder.path())
        };
        assert_eq!(folders(MODULES).unwrap(), ["1_Pooling", "2_Normalize"]);
        for path in ["../1_Pooling", "/tmp"] {
            let error = folders(&MODULES.replace("1_Pooling", path)).unwrap_err().to_string();
            assert!(error.contains("field `[1].path`"), "{error}");
        }
        assert!(super::module_folders(tempfile::TempDir::new().unwrap().path()).unwrap().is_empty());
    }
}
