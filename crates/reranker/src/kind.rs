//! The trait of reranker options.

use std::path::Path;

use sporran_config::{Document, Overrides};
use sporran_transformers::{DeviceName, ModelType, Precision, folder_max_tokens, wrong_model_type};

use crate::{
    Computing, Cosine, CosineOptions, CrossEncoder, CrossEncoderOptions, LlmOptions, LlmReranker, RERANKER,
    Reranker, Result, Saved, combined::CombinedOptions, open, takers::TAKERS, tfidf::TfIdfOptions,
};

/// The options of a kind of reranker.
///
/// A new kind implements this trait for its options and gets a line in `registry.rs`.
pub trait RerankerKind {
    /// The folder of the model; none for a model at an endpoint.
    fn folder(&self) -> Option<&Path>;

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
/// models of other programs.
pub(crate) fn check_folder((key, kind): (&str, &str), folder: &Path, document: &mut Document<'_>) {
    let model = format!("{key}.model");
    if !folder.join(RERANKER).is_file() {
        let takes = TAKERS.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, takes)| *takes);
        if let Some(message) = wrong_model_type(folder, takes, TAKERS) {
            return document.report_key(&model, message);
        }
        if takes == [ModelType::Reranker] {
            return document.check_folder(&model, folder, RERANKER);
        }
        return document.check_encoder(&model, folder);
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
    fn folder(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Err(error) = CrossEncoderOptions::check(self) {
            document.report_key(key, error.to_string());
        }
        check_folder((key, "cross-encoder"), &self.folder, document);
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        max_tokens_override(&self.folder, self.max_tokens, key, found)
    }

    fn open(&self) -> Result<Box<dyn Reranker>> {
        Ok(Box::new(CrossEncoder::load(self)?))
    }
}

impl RerankerKind for LlmOptions {
    fn folder(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Err(error) = LlmOptions::check(self) {
            document.report_key(key, error.to_string());
        }
        check_folder((key, "llm"), &self.folder, document);
    }

    fn open(&self) -> Result<Box<dyn Reranker>> {
        Ok(Box::new(LlmReranker::load(self)?))
    }
}

impl RerankerKind for CosineOptions {
    fn folder(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        let Self { precision, device, batch_tokens, .. } = *self;
        check_computing(key, Computing { precision, device, batch_tokens }, document);
        check_folder((key, "cosine"), &self.folder, document);
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        max_tokens_override(&self.folder, self.max_tokens, key, found)
    }

    fn open(&self) -> Result<Box<dyn Reranker>> {
        Ok(Box::new(Cosine::load(self)?))
    }
}

impl RerankerKind for TfIdfOptions {
    fn folder(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_folder((key, "tfidf"), &self.folder, document);
    }

    fn open(&self) -> Result<Box<dyn Reranker>> {
        // The device and the batches are those of models, which word counts do not have.
        let (precision, device) = (Precision::default(), DeviceName::default());
        open(&self.folder, Computing { precision, device, batch_tokens: 1 })
    }
}

impl RerankerKind for CombinedOptions {
    fn folder(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn check(&self, key: &str, document: &mut Document<'_>) {
        let Self { precision, device, batch_tokens, .. } = *self;
        check_computing(key, Computing { precision, device, batch_tokens }, document);
        check_folder((key, "combined"), &self.folder, document);
    }

    fn open(&self) -> Result<Box<dyn Reranker>> {
        let Self { precision, device, batch_tokens, .. } = *self;
        open(&self.folder, Computing { precision, device, batch_tokens })
    }
}
