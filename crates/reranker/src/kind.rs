//! The trait of reranker options.

use std::path::Path;

use sporran_config::{Document, Overrides};
use sporran_transformers::folder_max_tokens;

use crate::{
    Computing, Cosine, CosineOptions, CrossEncoder, CrossEncoderOptions, RERANKER, Reranker, Result, Saved,
};

/// The options of a kind of reranker.
///
/// A new kind implements this trait for its options and gets a line in `registry.rs`.
pub trait RerankerKind {
    /// The folder of the model.
    fn folder(&self) -> &Path;

    /// Reports wrong values and a missing folder, without loading the model. `key` is the path of the table.
    fn check(&self, key: &str, document: &mut Document<'_>);

    /// Adds the settings of the model's folder that the options override.
    ///
    /// # Errors
    /// Errors of the folder's files.
    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        let _ = (key, found);
        Ok(())
    }

    /// Loads the reranker.
    ///
    /// # Errors
    /// Errors of the folder's files.
    fn open(&self) -> Result<Box<dyn Reranker>>;
}

/// Reports a folder that does not exist, and one with a reranker of another kind. Folders without `reranker.json` are
/// models of other programs: `is_model` reports what they lack.
pub(crate) fn check_folder(
    (key, kind): (&str, &str),
    folder: &Path,
    document: &mut Document<'_>,
    is_model: impl FnOnce(&str, &mut Document<'_>),
) {
    let model = format!("{key}.model");
    if !folder.join(RERANKER).is_file() {
        return is_model(&model, document);
    }
    match Saved::read(folder) {
        Ok(saved) if saved.kind() == kind => {}
        Ok(saved) => {
            let message = format!("expected `{}`, the kind in {}", saved.kind(), folder.display());
            document.report_key(&format!("{key}.kind"), format!("{message}; found `{kind}`"));
        }
        Err(error) => document.report_key(&model, error.to_string()),
    }
}

/// Reports a device that this build does not support, and a precision that the device does not support.
pub(crate) fn check_computing(key: &str, computing: Computing, document: &mut Document<'_>) {
    if let Err(error) = computing.device.check(computing.precision) {
        document.report_key(&format!("{key}.device"), error.to_string());
    }
}

/// Adds `max-tokens` if it differs from the folder's.
fn max_tokens_override(
    folder: &Path,
    max_tokens: Option<usize>,
    key: &str,
    found: &mut Overrides,
) -> Result<()> {
    let saved = match Saved::read(folder)? {
        Saved::CrossEncoder { max_tokens, .. } | Saved::Cosine { max_tokens } => max_tokens,
        _ => None,
    };
    let own = match saved {
        Some(own) => Some(own),
        None => folder_max_tokens(folder)?,
    };
    if let (Some(own), Some(most)) = (own, max_tokens)
        && own != most
    {
        let (folder, config) = (own.to_string(), most.to_string());
        found.insert(format!("{key}.max-tokens"), sporran_config::Override { folder, config });
    }
    Ok(())
}

impl RerankerKind for CrossEncoderOptions {
    fn folder(&self) -> &Path {
        &self.folder
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Err(error) = CrossEncoderOptions::check(self) {
            document.report_key(key, error.to_string());
        }
        check_folder((key, "cross-encoder"), &self.folder, document, |model, document| {
            document.check_encoder(model, &self.folder);
        });
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        max_tokens_override(&self.folder, self.max_tokens, key, found)
    }

    fn open(&self) -> Result<Box<dyn Reranker>> {
        Ok(Box::new(CrossEncoder::load(self)?))
    }
}

impl RerankerKind for CosineOptions {
    fn folder(&self) -> &Path {
        &self.folder
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        let Self { precision, device, batch_tokens, .. } = *self;
        check_computing(key, Computing { precision, device, batch_tokens }, document);
        check_folder((key, "cosine"), &self.folder, document, |model, document| {
            document.check_encoder(model, &self.folder);
        });
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        max_tokens_override(&self.folder, self.max_tokens, key, found)
    }

    fn open(&self) -> Result<Box<dyn Reranker>> {
        Ok(Box::new(Cosine::load(self)?))
    }
}
