//! The options of zero-shot slot filling. The documentation of these types is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_training::TrainingOptions;
use sporran_transformers::{DeviceName, ModelType, Precision, wrong_model_type};

use crate::{
    config::Config,
    source::{options::SourceOptions, pages},
};

/// A whole config of zero-shot slot filling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SlotsOptions {
    /// `name`: the name of the run's folder in `output`.
    pub name: String,
    /// `seed`: the seed of all random choices, such as the split of relations.
    #[serde(default)]
    pub seed: u64,
    /// `output`: the parent folder of runs.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[source]`: the knowledge source with the pages of the entities. Without it, predictions have no provenance.
    pub source: Option<SourceOptions>,
    /// `[slot-filling]`: the model and its input.
    pub slot_filling: SlotFillingOptions,
}

/// `[slot-filling]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SlotFillingOptions {
    /// The folder of the model. Training writes it, and `sporran run` reads it. The default is `model` in the run's folder.
    pub model: Option<PathBuf>,
    /// Files of questions with sentences that `sporran run` answers and scores.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// The device: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The precision of the computation: `f32`, or `int8` on a CPU.
    #[serde(default)]
    pub precision: Precision,
    /// `[slot-filling.training]`: the training of the model.
    pub training: Option<SlotsTraining>,
}

/// `[slot-filling.training]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SlotsTraining {
    /// The folder of the initial encoder: a BERT, or a reader.
    pub from: PathBuf,
    /// Training files of questions with sentences.
    pub files: Vec<PathBuf>,
    /// The share of relations that are neither for training nor for validation, so that `sporran run` can test on them.
    #[serde(default = "unseen")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub unseen: f64,
    /// The share of relations for validation: for the threshold and the score of each epoch.
    #[serde(default = "validation_share")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub validation_share: f64,
    /// The largest number of tokens of relation, question and sentence.
    #[serde(default = "max_tokens")]
    #[schemars(range(min = 32), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// The largest number of tokens of an answer.
    #[serde(default = "answer_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub answer_tokens: usize,
    /// `[slot-filling.training.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

fn unseen() -> f64 {
    0.2
}

fn validation_share() -> f64 {
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
        // A trained model runs without its training data.
        let is_made = self.model().join("config.json").is_file();
        let key = |name: &str| format!("slot-filling.training.{name}");
        if training.files.is_empty() {
            document.report_key(&key("files"), "expected at least one file");
        }
        if !is_made {
            document.check_files(&key("files"), &training.files);
            document.check_checkpoint(&key("from"), &training.from);
            if let Some(message) = wrong_model_type(&training.from, ModelType::ENCODERS, &[]) {
                document.report_key(&key("from"), message);
            }
        }
        if training.unseen + training.validation_share >= 1.0 {
            let sum = training.unseen + training.validation_share;
            document.report_key(
                &key("validation-share"),
                format!("expected less than 1 with `unseen`, found {sum}"),
            );
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
