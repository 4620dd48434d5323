//! What a config says. These types' documentation is the manual of the config file.
//!
//! Paths are relative to the folder that the program runs in, as arguments on a command line are.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_generator::{EvidenceSource, GeneratorOptions};
use sporran_training::{KnowledgeOptions, TrainingOptions};
use sporran_transformers::DeviceName;

use crate::{
    Result,
    config::to_toml,
    source::options::{PagesOptions, SourceOptions},
    tasks::options::{QueryOptions, TasksOptions},
    training::options::ShapeOptions,
    workflows::answer::{retrieval::RetrieverOptions, train::encoders::EncoderTraining},
};

/// A whole config.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Options {
    /// Everything but the stages.
    #[serde(flatten)]
    pub general: General,
    /// `[retriever]`: finds passages; without it the generator works from memory. A `[reranker]` beside it is a
    /// retriever of kind `reranked` around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retriever: Option<RetrieverOptions>,
    /// `[generator]`: writes answers; without it predictions hold evidence only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator: Option<GeneratorOptions>,
}

/// The keys that stand outside the stages' tables.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct General {
    /// The run's name: its folder under `output`.
    pub name: String,
    /// Decides everything that is drawn by chance.
    #[serde(default)]
    pub seed: u64,
    /// Where runs' folders go.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `also`: configs of population, of reasoning or of responses that `sporran run` works on when the tasks are done, each
    /// in a folder of its own under the same `output`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<PathBuf>,
    /// `[source]`: the knowledge source. Closed-book runs can do without.
    pub source: Option<SourceOptions>,
    /// `[pages]`: which pages can be found; all of them without it.
    pub pages: Option<PagesOptions>,
    /// `[tasks]`: what is asked.
    pub tasks: TasksOptions,
    /// `[query]`: how a record's input becomes the retriever's query.
    #[serde(default)]
    pub query: QueryOptions,
    /// `[evidence]`: what predictions carry as provenance.
    #[serde(default)]
    pub evidence: EvidenceOptions,
    /// `[evaluation]`: scores in addition to R-precision, recall@5 and those of the answers.
    #[serde(default, skip_serializing_if = "EvaluationOptions::is_default")]
    pub evaluation: EvaluationOptions,
    /// `[train]`: how `sporran train` makes the generator's model.
    pub train: Option<TrainOptions>,
    /// `[encoder-training]`: how `sporran train` makes an encoder that retrieves or reranks.
    pub encoder_training: Option<EncoderTraining>,
}

/// `[evidence]`: what predictions carry as provenance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EvidenceOptions {
    /// Passages that are retrieved for each query.
    #[schemars(range(min = 1), extend("x-unit" = "passages"))]
    pub depth: usize,
    /// Items of provenance in a prediction, at most; see `evaluation.recall-at`.
    #[schemars(range(min = 1))]
    pub limit: usize,
    /// Only the best passage of each page, as page-level scores want it.
    pub one_per_page: bool,
    /// How pages are ranked by their passages.
    pub page_score: PageScore,
    /// What provenance is made of: `ranking`, `read`, `chosen` or `title`. By default the generator's kind decides: `rag-token`
    /// and `rag-sequence` give what they `read`, `memnet` what it has `chosen`, all others the `ranking`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<EvidenceSource>,
    /// The same for entity linking, where by default every generator that writes or picks an answer gives the page of that
    /// `title`; `kind = "title"`, which repeats a title that was retrieved, and runs without a generator give the `ranking`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity_linking: Option<EvidenceSource>,
    /// Whether items carry the passage's text and score, for the `*_in_context` scores.
    pub with_text: bool,
}

impl Default for EvidenceOptions {
    fn default() -> Self {
        Self {
            depth: 100,
            limit: 20,
            one_per_page: true,
            page_score: PageScore::Best,
            from: None,
            entity_linking: None,
            with_text: false,
        }
    }
}

/// `[evaluation]`: scores in addition to R-precision, recall@5 and those of the answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EvaluationOptions {
    /// Depths at which the report has recall as well, each at least 2. Predictions hold as many items as the deepest of them
    /// asks for, where `evidence.limit` is less. With `evidence.one-per-page` more passages are retrieved for a query whose
    /// passages are of fewer pages.
    #[schemars(inner(range(min = 2)))]
    pub recall_at: Vec<usize>,
}

impl EvaluationOptions {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl General {
    /// Makes predictions as deep as the deepest recall in the report.
    pub(super) fn hold_what_is_scored(&mut self) {
        let deepest = self.evaluation.recall_at.iter().copied().max().unwrap_or_default();
        self.evidence.limit = self.evidence.limit.max(deepest);
        self.evidence.depth = self.evidence.depth.max(deepest);
    }
}

/// What a page is worth as evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PageScore {
    /// As much as its best passage.
    #[default]
    Best,
    /// The sum of its passages' scores, as far as they were retrieved.
    Sum,
    /// The sum of `1 / (60 + rank)` over its passages.
    ReciprocalRank,
}

/// `[train]`: how `sporran train` makes the generator's model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrainOptions {
    /// Where the trained model goes, in the Hugging Face layout.
    pub model: PathBuf,
    /// A model folder to go on from; without it a T5 of the shape of `[train.shape]` starts from random weights.
    pub from: Option<PathBuf>,
    /// `[train.shape]`: the size of a model that starts from random weights.
    #[serde(default)]
    pub shape: ShapeOptions,
    /// `[train.optimizer]`: steps, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
    /// `[train.examples]`: what it learns from; the `[tasks]` of the config are what it is judged on.
    pub examples: TasksOptions,
    /// What the model learns to write.
    #[serde(default)]
    pub target: Target,
    /// Put a gold page's passage among the passages where the retriever missed all of them.
    #[serde(default)]
    pub add_gold: bool,
    /// `[train.matching]`: the shape of a verifier's matching network, which starts from random weights.
    #[serde(default)]
    pub matching: MatchingOptions,
    /// Generators of kind `verifier`: pieces without evidence that a pass shows beside each claim's evidence.
    #[serde(default = "negatives")]
    pub negatives: usize,
    /// Generators of kind `rag-token` and `rag-sequence`: the folder of the question encoder that learns through the
    /// generator; the trained one goes to `retriever.model`. Without it, the retriever stays as it is.
    pub question_encoder: Option<PathBuf>,
    /// `[train.knowledge]`: the loss of a memory network.
    #[serde(default)]
    pub knowledge: KnowledgeOptions,
    /// Tokens of a target, at most.
    #[serde(default = "target_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub target_tokens: usize,
    /// Records of each dataset that a judgement during training looks at.
    #[serde(default = "judged")]
    #[schemars(range(min = 1), extend("x-unit" = "records"))]
    pub judged: usize,
    /// Where it trains, in f32: `cpu`, `cuda` or `cuda:N`; GPUs need a program that was built with the feature `cuda`.
    #[serde(default)]
    pub device: DeviceName,
}

fn negatives() -> usize {
    2
}

fn target_tokens() -> usize {
    64
}

fn judged() -> usize {
    40
}

/// `[train.matching]`: a neural semantic matching network (Nie, Chen and Bansal 2019).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MatchingOptions {
    /// Tokens of the vocabulary, which is learned from claims and evidence.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub vocabulary: usize,
    /// Width of a token's vector.
    #[schemars(range(min = 1))]
    pub embedding_size: usize,
    /// Cells of each direction of both LSTMs.
    #[schemars(range(min = 1))]
    pub hidden_size: usize,
    /// Width of the layers between them and before the labels.
    #[schemars(range(min = 1))]
    pub projection_size: usize,
    /// Share of the values before the labels that dropout zeroes while training.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// Tokens of a claim or a piece of evidence, at most.
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

/// What a generator learns to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A gold answer.
    #[default]
    Answer,
    /// The title of a gold page, for a retriever of kind `entity-title`.
    Title,
}

impl Options {
    /// The config with every default, as TOML.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) where a value has no form in TOML, such as a number beyond 64 bits.
    pub fn to_toml(&self) -> Result<String> {
        to_toml(self)
    }
}
