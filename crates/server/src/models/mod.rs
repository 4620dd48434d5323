//! Models that are served by themselves.

mod classifier;
mod embedder;
mod reranker;

use std::path::Path;

pub(crate) use classifier::{Classified, Classifier};
pub(crate) use embedder::{Embedded, Embedder, Wanted};
pub(crate) use reranker::{Score, ServedReranker};

use crate::{Failure, Result, ServedModels, clock::now, work::Setting};

/// The models that are served by themselves.
pub(crate) struct Models {
    embedder: Option<Embedder>,
    reranker: Option<ServedReranker>,
    classifier: Option<Classifier>,
    opened: u64,
}

impl Models {
    /// Loads the models.
    ///
    /// # Errors
    /// Errors of their folders.
    pub(crate) fn open(options: &ServedModels, setting: &Setting) -> Result<Self> {
        let ServedModels { embedder, reranker, classifier, .. } = options;
        Ok(Self {
            embedder: embedder
                .as_deref()
                .map(|folder| Embedder::open(folder, options, setting))
                .transpose()?,
            reranker: reranker
                .as_deref()
                .map(|folder| ServedReranker::open(folder, options, setting))
                .transpose()?,
            classifier: classifier
                .as_deref()
                .map(|folder| Classifier::open(folder, options, setting))
                .transpose()?,
            opened: now(),
        })
    }

    /// The time at which they were loaded, in seconds since 1970.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// The encoder.
    ///
    /// # Errors
    /// A server without one.
    pub(crate) fn embedder(&self) -> Result<&Embedder, Failure> {
        self.embedder.as_ref().ok_or_else(|| missing("encoder", "--embed"))
    }

    /// The reranker.
    ///
    /// # Errors
    /// A server without one.
    pub(crate) fn reranker(&self) -> Result<&ServedReranker, Failure> {
        self.reranker.as_ref().ok_or_else(|| missing("reranker", "--rerank"))
    }

    /// The classifier.
    ///
    /// # Errors
    /// A server without one.
    pub(crate) fn classifier(&self) -> Result<&Classifier, Failure> {
        self.classifier.as_ref().ok_or_else(|| missing("classifier", "--classify"))
    }

    /// The names of the models with what they do.
    pub(crate) fn names(&self) -> Vec<(&str, &'static str)> {
        let embedder = self.embedder.iter().map(|model| (model.name(), "embed"));
        let reranker = self.reranker.iter().map(|model| (model.name(), "rerank"));
        let classifier = self.classifier.iter().map(|model| (model.name(), "classify"));
        embedder.chain(reranker).chain(classifier).collect()
    }
}

fn missing(what: &str, option: &str) -> Failure {
    Failure::new(
        crate::Cause::NotFound,
        format!("this server has no {what}; it was started without `{option}`"),
    )
}

/// The name of a model: that of its folder.
fn name(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    whole.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}
