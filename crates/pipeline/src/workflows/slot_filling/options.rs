//! What a config of zero-shot slot filling says. These types' documentation is the manual of the config file.

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

/// A whole config of zero-shot slot filling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SlotsOptions {
    /// `name`: the run's folder under `output`.
    pub name: String,
    /// `seed`: decides everything that is drawn by chance, and which relations are learned.
    #[serde(default)]
    pub seed: u64,
    /// `output`: where runs' folders go.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[source]`: the knowledge source whose pages the questions' entities are; without it predictions have no provenance.
    pub source: Option<SourceOptions>,
    /// `[slot-filling]`: the model and what it reads.
    pub slot_filling: SlotFillingOptions,
}

/// `[slot-filling]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SlotFillingOptions {
    /// The model's folder, by default the run's own `model`: where training puts it and where it is read from.
    pub model: Option<PathBuf>,
    /// Files of questions with sentences ([`sporran_kilt::zsre`]) that `sporran run` answers and scores.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// Where it computes and trains: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The numbers that it computes with: `f32` or `int8` on a CPU.
    #[serde(default)]
    pub precision: Precision,
    /// `[slot-filling.training]`: how the model is made.
    pub training: Option<SlotsTraining>,
}

/// `[slot-filling.training]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SlotsTraining {
    /// The folder of the encoder to start from: BERT, or a reader.
    pub from: PathBuf,
    /// Files of questions with sentences to learn from.
    pub files: Vec<PathBuf>,
    /// Of all relations the share that is neither learned nor looked at, so that `sporran run` can be tried on it.
    #[serde(default = "unseen")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub unseen: f64,
    /// Of all relations the share that judges each pass over the others, and decides on the threshold.
    #[serde(default = "judged")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub judged: f64,
    /// Tokens of relation, question and sentence, at most.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 32), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// Tokens of an answer, at most.
    #[serde(default = "answer_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub answer_tokens: usize,
    /// `[slot-filling.training.optimizer]`: passes, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

fn unseen() -> f64 {
    0.2
}

fn judged() -> f64 {
    0.1
}

fn max_tokens() -> usize {
    256
}

fn answer_tokens() -> usize {
    16
}

impl Config for SlotsOptions {
    const WORKFLOWS: &'static [&'static str] = &["slot-filling"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        document.read_root(&[])
    }

    fn check(&self, document: &mut Document<'_>) {
        let options = &self.slot_filling;
        pages::check(self.source.as_ref(), ("source", None), document);
        document.check_inputs("slot-filling.files", &options.files);
        if let Err(error) = options.device.check(options.precision) {
            document.report_key("slot-filling.device", error.to_string());
        }
        let Some(training) = &options.training else { return };
        // A model that is made already can be run without what it was made from.
        let is_made = self.model().join("config.json").is_file();
        let key = |name: &str| format!("slot-filling.training.{name}");
        if training.files.is_empty() {
            document.report_key(&key("files"), "expected at least one file");
        }
        if !is_made {
            document.check_files(&key("files"), &training.files);
            document.check_checkpoint(&key("from"), &training.from);
        }
        if training.unseen + training.judged >= 1.0 {
            let sum = training.unseen + training.judged;
            document.report_key(&key("judged"), format!("expected less than 1 with `unseen`, found {sum}"));
        }
        if let Err(error) = training.optimizer.check() {
            document.report_key(&key("optimizer"), error.to_string());
        }
    }
}

impl SlotsOptions {
    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }

    /// The model's folder.
    #[must_use]
    pub fn model(&self) -> PathBuf {
        self.slot_filling.model.clone().unwrap_or_else(|| self.folder().join("model"))
    }
}
