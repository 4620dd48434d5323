//! Models that are served by themselves.

mod embedder;

pub(crate) use embedder::{Embedded, Embedder, Wanted};

use crate::{Result, ServedModels, mounts::Setting};

/// The models that are served by themselves.
pub(crate) struct Models {
    pub(crate) embedder: Option<Embedder>,
}

impl Models {
    /// Loads the models.
    ///
    /// # Errors
    /// Errors of their folders.
    pub(crate) fn open(options: &ServedModels, setting: &Setting) -> Result<Self> {
        let embedder =
            options.embedder.as_deref().map(|folder| Embedder::open(folder, options, setting)).transpose()?;
        Ok(Self { embedder })
    }
}

/// The name of a model: that of its folder.
fn name(folder: &std::path::Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    whole.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}
