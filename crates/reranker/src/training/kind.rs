//! The trait of the options of every kind of reranker training.

use std::path::Path;

use sporran_config::Document;
use sporran_kilt::observe::Observer;
use sporran_transformers::{ModelType, wrong_model_type};

use super::RerankerSession;
use crate::Result;

/// The options of a kind of reranker training.
///
/// A new kind implements this trait for its options and gets a line in `registry.rs`.
pub trait RerankerTrainingKind {
    /// The model to start from.
    fn from(&self) -> Option<&Path> {
        None
    }

    /// Whether `[combine]` is allowed.
    fn combines(&self) -> bool {
        true
    }

    /// Reports wrong values and missing files. `key` is the path of the table.
    fn check(&self, key: &str, document: &mut Document<'_>) {
        if let Some(from) = self.from() {
            check_from(&format!("{key}.from"), from, document);
        }
    }

    /// Trains a reranker and writes its files into the folder of the model. Returns the number of optimiser steps. A stopped
    /// training resumes from its newest checkpoint.
    ///
    /// # Errors
    /// Errors of files, models or training.
    fn train(&self, session: &RerankerSession<'_>, observe: &mut Observer<'_>) -> Result<u64>;
}

/// Reports a folder that is no encoder, from which a training starts.
pub(crate) fn check_from(key: &str, from: &Path, document: &mut Document<'_>) {
    document.check_checkpoint(key, from);
    if let Some(message) = wrong_model_type(from, ModelType::ENCODERS, &[]) {
        document.report_key(key, message);
    }
}
