//! The options of document-level relations. The documentation of these types is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_extractor::document_relations::DocumentsTraining;
use sporran_transformers::{DeviceName, Precision};

use crate::{
    config::Config,
    source::{options::SourceOptions, pages},
};

/// A whole config of document-level relations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DocumentsOptions {
    /// `name`: the name of the run's folder in `output`.
    pub name: String,
    /// `seed`: the seed of all random choices.
    #[serde(default)]
    pub seed: u64,
    /// `output`: the parent folder of runs.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[source]`: the knowledge source with the documents' pages, by title. Without it, predictions have no provenance.
    pub source: Option<SourceOptions>,
    /// `[document-relations]`: the model and its input.
    pub document_relations: DocumentRelationsOptions,
}

/// `[document-relations]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DocumentRelationsOptions {
    /// The folder of the model. Training writes it, and `sporran run` reads it. The default is `model` in the run's folder.
    pub model: Option<PathBuf>,
    /// Input files of `sporran run`, in DocRED's layout. Files with gold relations are scored.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// The device: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The precision of the computation: `f32`, or `int8` on a CPU.
    #[serde(default)]
    pub precision: Precision,
    /// `[document-relations.training]`: the training of the model.
    pub training: Option<DocumentsTraining>,
}

impl Config for DocumentsOptions {
    const WORKFLOWS: &'static [&'static str] = &["document-relations"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        document.read_root(&[])
    }

    fn check(&self, document: &mut Document<'_>) {
        let options = &self.document_relations;
        let key = |name: &str| format!("document-relations.{name}");
        pages::check(self.source.as_ref(), ("source", None), document);
        document.check_inputs(&key("files"), &options.files);
        if let Err(error) = options.device.check(options.precision) {
            document.report_key(&key("device"), error.to_string());
        }
        let Some(training) = &options.training else { return };
        // A trained model runs without its training data.
        let is_made = self.model().join("config.json").is_file();
        training.check("document-relations.training", is_made, document);
    }
}

impl DocumentsOptions {
    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }

    /// The model's folder.
    #[must_use]
    pub fn model(&self) -> PathBuf {
        self.document_relations.model.clone().unwrap_or_else(|| self.folder().join("model"))
    }
}
