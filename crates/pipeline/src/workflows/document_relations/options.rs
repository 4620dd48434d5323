//! What a config of document-level relations says. These types' documentation is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_training::TrainingOptions;
use sporran_transformers::{DeviceName, Precision};

use crate::{
    config::Config,
    source::{options::SourceOptions, pages},
};

/// A whole config of document-level relations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DocumentsOptions {
    /// `name`: the run's folder under `output`.
    pub name: String,
    /// `seed`: decides everything that is drawn by chance.
    #[serde(default)]
    pub seed: u64,
    /// `output`: where runs' folders go.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[source]`: the knowledge source whose pages the documents' titles are; without it predictions have no provenance.
    pub source: Option<SourceOptions>,
    /// `[document-relations]`: the model and what it reads.
    pub document_relations: DocumentRelationsOptions,
}

/// `[document-relations]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DocumentRelationsOptions {
    /// The model's folder, by default the run's own `model`: where training puts it and where it is read from.
    pub model: Option<PathBuf>,
    /// Files in DocRED's layout that `sporran run` finds relations in, and scores where the files tell them.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// Where it computes and trains: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The numbers that it computes with: `f32` or `int8` on a CPU.
    #[serde(default)]
    pub precision: Precision,
    /// `[document-relations.training]`: how the model is made.
    pub training: Option<DocumentsTraining>,
}

/// `[document-relations.training]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DocumentsTraining {
    /// The folder of the encoder to start from.
    pub from: PathBuf,
    /// Files in DocRED's layout to learn from.
    pub files: Vec<PathBuf>,
    /// Of so many documents one is not learned from; these judge each pass over the others, and decide on the threshold.
    #[serde(default = "judge_every")]
    #[schemars(range(min = 2))]
    pub judge_every: usize,
    /// Tokens of a window of a document, at most.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 128), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// Width of what is compared of two entities.
    #[serde(default = "inner")]
    #[schemars(range(min = 1))]
    pub inner: usize,
    /// Values of a part of it, within which all products are read.
    #[serde(default = "block")]
    #[schemars(range(min = 1))]
    pub block: usize,
    /// Heads of the attention that finds what matters to both entities.
    #[serde(default = "heads")]
    #[schemars(range(min = 1))]
    pub heads: usize,
    /// Share of the values that the head drops.
    #[serde(default = "dropout")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// What finding the sentences that show a relation counts beside finding the relation; 0 does not learn it.
    #[serde(default = "evidence")]
    #[schemars(range(min = 0))]
    pub evidence: f64,
    /// Of the words' pieces the share that each pass hides, so that names are not learned by heart.
    #[serde(default)]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub hidden: f64,
    /// Whether the weights are written in half precision.
    #[serde(default)]
    pub half: bool,
    /// `[document-relations.training.optimizer]`: passes, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

fn judge_every() -> usize {
    10
}

fn max_tokens() -> usize {
    512
}

fn inner() -> usize {
    384
}

fn block() -> usize {
    32
}

fn heads() -> usize {
    6
}

fn dropout() -> f64 {
    0.1
}

fn evidence() -> f64 {
    0.1
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
        // A model that is made already can be run without what it was made from.
        let is_made = self.model().join("config.json").is_file();
        let key = |name: &str| format!("document-relations.training.{name}");
        if training.files.is_empty() {
            document.report_key(&key("files"), "expected at least one file");
        }
        if !is_made {
            document.check_files(&key("files"), &training.files);
            document.check_checkpoint(&key("from"), &training.from);
        }
        for (name, part) in [("block", training.block), ("heads", training.heads)] {
            if part == 0 || training.inner == 0 || !training.inner.is_multiple_of(part) {
                let message = format!("expected a divisor of `inner` ({}), found {part}", training.inner);
                document.report_key(&key(name), message);
            }
        }
        if let Err(error) = training.optimizer.check() {
            document.report_key(&key("optimizer"), error.to_string());
        }
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
