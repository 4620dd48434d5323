//! `[train]`: the options of the training of a generator.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Document, Kinds};
use sporran_training::{KnowledgeOptions, TrainingOptions, session::ShapeOptions};
use sporran_transformers::{DeviceName, ModelType, Precision, wrong_model_type};

use super::{GeneratorTrainer, registry::STARTERS};
use crate::{UnitKind, registry::GeneratorOptions};

/// `[train]`: the training of the generator's model by `sporran train`.
///
/// `Records` are the options of the training records, which the caller reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrainOptions<Records> {
    /// The folder of the trained model, in the Hugging Face layout.
    pub model: PathBuf,
    /// The folder of the initial model. Without it, training starts from a T5 of `[train.shape]` with random weights. A generator
    /// of kind `causal` needs it.
    pub from: Option<PathBuf>,
    /// `[train.shape]`: the sizes of a model with random weights.
    #[serde(default)]
    pub shape: ShapeOptions,
    /// `[train.optimizer]`: steps, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
    /// `[train.examples]`: the training records. In the workflow `answer`, `[tasks]` are the validation records.
    pub examples: Records,
    /// The target of the generator.
    #[serde(default)]
    pub target: Target,
    /// Whether to add a passage of a gold page if the retriever found none.
    #[serde(default)]
    pub add_gold: bool,
    /// `[train.matching]`: the sizes of a verifier's matching network with random weights.
    #[serde(default)]
    pub matching: MatchingOptions,
    /// Generators of kind `verifier`: the number of pieces without evidence to sample for each claim and epoch.
    #[serde(default = "negatives")]
    pub negatives: usize,
    /// Generators of kind `verifier`: the number of pieces without evidence to sample from the gold pages, for each claim and
    /// epoch. `negatives` then counts pieces of other pages only. Without this key, `negatives` counts pieces of any page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_negatives: Option<usize>,
    /// Generators of kind `verifier`: the unit of evidence in training. The default is `generator.evidence`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<UnitKind>,
    /// Generators of kind `rag-token` and `rag-sequence`: the folder of the initial question encoder, which is trained with the
    /// generator. Training writes it to `retriever.model`. Without this key, the retriever is frozen.
    pub question_encoder: Option<PathBuf>,
    /// `[train.knowledge]`: the loss of a memory network.
    #[serde(default)]
    pub knowledge: KnowledgeOptions,
    /// Generators of kind `causal`: special tokens that the vocabulary gets, such as the marks of speakers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added_tokens: Vec<String>,
    /// The largest number of tokens of a target.
    #[serde(default = "target_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub target_tokens: usize,
    /// Generators of kind `seq2seq`: the share of inputs whose target is the record's first answer. The others learn any of its
    /// answers, drawn at random.
    #[serde(default = "first_answers")]
    #[schemars(range(min = 0, max = 1))]
    pub first_answers: f64,
    /// Generators of kind `seq2seq`: the share of inputs whose passages are in random order.
    #[serde(default = "shuffled_passages")]
    #[schemars(range(min = 0, max = 1))]
    pub shuffled_passages: f64,
    /// The number of validation records of each dataset, the first ones.
    #[serde(default = "validation_records")]
    #[schemars(range(min = 1), extend("x-unit" = "records"))]
    pub validation_records: usize,
    /// The device of the training, in f32: `cpu`, `cuda` or `cuda:N`. GPUs need a build with the feature `cuda`.
    #[serde(default)]
    pub device: DeviceName,
}

fn negatives() -> usize {
    2
}

fn target_tokens() -> usize {
    64
}

fn first_answers() -> f64 {
    0.9
}

fn shuffled_passages() -> f64 {
    0.3
}

fn validation_records() -> usize {
    40
}

impl<Records> TrainOptions<Records> {
    /// The settings without the records.
    #[must_use]
    pub fn settings(&self) -> TrainSettings<'_> {
        TrainSettings {
            model: &self.model,
            from: self.from.as_deref(),
            shape: &self.shape,
            optimizer: &self.optimizer,
            target: self.target,
            add_gold: self.add_gold,
            matching: self.matching,
            negatives: self.negatives,
            page_negatives: self.page_negatives,
            evidence: self.evidence,
            question_encoder: self.question_encoder.as_deref(),
            knowledge: self.knowledge,
            added_tokens: &self.added_tokens,
            target_tokens: self.target_tokens,
            first_answers: self.first_answers,
            shuffled_passages: self.shuffled_passages,
            device: self.device,
        }
    }

    /// Reports wrong values, missing folders and initial models of another type. `key` is the path of the table.
    pub fn check(&self, key: &str, generator: Option<&GeneratorOptions>, document: &mut Document<'_>) {
        let name = |option: &str| format!("{key}.{option}");
        let trainer = generator.and_then(GeneratorOptions::trainer);
        let kind = generator.map(Kinds::kind);
        let starts = STARTERS.iter().find(|(name, _)| Some(*name) == kind).map(|(_, starts)| *starts);
        // A trained model does not need its initial model.
        let is_trained = self.model.join("config.json").is_file();
        for (option, from, starts, takers) in [
            ("from", &self.from, starts, STARTERS),
            ("question-encoder", &self.question_encoder, Some(ModelType::ENCODERS), &STARTERS[..0]),
        ] {
            let Some(from) = from.as_ref().filter(|_| !is_trained) else { continue };
            document.check_checkpoint(&name(option), from);
            if let Some(message) = starts.and_then(|starts| wrong_model_type(from, starts, takers)) {
                document.report_key(&name(option), message);
            }
        }
        if self.from.is_none() && trainer.is_some_and(GeneratorTrainer::needs_from) {
            document.report_key(&name("from"), "is missing; this kind is trained from the folder of a model");
        }
        if !self.added_tokens.is_empty() && !trainer.is_some_and(GeneratorTrainer::adds_tokens) {
            document.report_key(&name("added-tokens"), "expected it only with a generator of kind `causal`");
        }
        if self.added_tokens.iter().any(|token| token.trim().is_empty()) {
            document.report_key(&name("added-tokens"), "expected tokens that are not blank");
        }
        if self.question_encoder.is_some() && !trainer.is_some_and(GeneratorTrainer::is_live) {
            let message = "expected it only with a generator of kind `rag-token` or `rag-sequence`";
            document.report_key(&name("question-encoder"), message);
        }
        let is_verifier = matches!(generator, Some(GeneratorOptions::Verifier(_)));
        for (option, is_given) in
            [("page-negatives", self.page_negatives.is_some()), ("evidence", self.evidence.is_some())]
        {
            if is_given && !is_verifier {
                document.report_key(&name(option), "expected it only with a generator of kind `verifier`");
            }
        }
        if let Err(error) = self.device.check(Precision::F32) {
            document.report_key(&name("device"), error.to_string());
        }
        if let Err(error) = self.optimizer.check() {
            document.report_key(&name("optimizer"), error.to_string());
        }
        if let Err(error) = self.knowledge.check() {
            document.report_key(&name("knowledge"), error.to_string());
        }
    }
}

/// The settings of a training: `[train]` without its records.
#[derive(Clone, Copy, Debug)]
pub struct TrainSettings<'a> {
    /// The folder of the trained model.
    pub model: &'a Path,
    /// The folder of the initial model.
    pub from: Option<&'a Path>,
    /// The sizes of a T5 with random weights.
    pub shape: &'a ShapeOptions,
    /// The optimizer and the schedule.
    pub optimizer: &'a TrainingOptions,
    /// The target of the generator.
    pub target: Target,
    /// Whether to add a passage of a gold page if the retriever found none.
    pub add_gold: bool,
    /// The sizes of a matching network.
    pub matching: MatchingOptions,
    /// The number of pieces or passages without evidence to sample for each record and epoch.
    pub negatives: usize,
    /// The number of a verifier's pieces without evidence to sample from pages with evidence.
    pub page_negatives: Option<usize>,
    /// A verifier's unit of evidence in training; by default that of its runs.
    pub evidence: Option<UnitKind>,
    /// The folder of the initial question encoder. `None` if the retriever is frozen.
    pub question_encoder: Option<&'a Path>,
    /// The loss of a memory network.
    pub knowledge: KnowledgeOptions,
    /// The special tokens that the vocabulary gets.
    pub added_tokens: &'a [String],
    /// The largest number of tokens of a target.
    pub target_tokens: usize,
    /// The share of inputs whose target is the first answer, of 0 to 1.
    pub first_answers: f64,
    /// The share of inputs whose passages are in random order, of 0 to 1.
    pub shuffled_passages: f64,
    /// The device.
    pub device: DeviceName,
}

impl<'a> TrainSettings<'a> {
    /// Those of a folder, with the defaults of `[train]`.
    #[must_use]
    pub fn new(model: &'a Path, shape: &'a ShapeOptions, optimizer: &'a TrainingOptions) -> Self {
        Self {
            model,
            from: None,
            shape,
            optimizer,
            target: Target::default(),
            add_gold: false,
            matching: MatchingOptions::default(),
            negatives: negatives(),
            page_negatives: None,
            evidence: None,
            question_encoder: None,
            knowledge: KnowledgeOptions::default(),
            added_tokens: &[],
            target_tokens: target_tokens(),
            first_answers: first_answers(),
            shuffled_passages: shuffled_passages(),
            device: DeviceName::default(),
        }
    }
}

/// `[train.matching]`: a neural semantic matching network (Nie, Chen and Bansal 2019).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MatchingOptions {
    /// The size of the vocabulary, which is trained on claims and evidence.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub vocabulary: usize,
    /// The size of the token embeddings.
    #[schemars(range(min = 1))]
    pub embedding_size: usize,
    /// The hidden size of each direction of both LSTMs.
    #[schemars(range(min = 1))]
    pub hidden_size: usize,
    /// The size of the layers between the LSTMs and before the logits.
    #[schemars(range(min = 1))]
    pub projection_size: usize,
    /// The dropout rate before the logits.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// The largest number of tokens of a claim or a piece of evidence.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_length: usize,
}

impl Default for MatchingOptions {
    fn default() -> Self {
        Self {
            vocabulary: 6000,
            embedding_size: 64,
            hidden_size: 64,
            projection_size: 64,
            dropout: 0.2,
            max_length: 64,
        }
    }
}

/// The target of a generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A gold answer.
    #[default]
    Answer,
    /// The title of a gold page, for a retriever of kind `entity-title`.
    Title,
}
