//! The options of EmbedKGQA and TransferNet. The documentation of these types is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_training::TrainingOptions;

/// The encoder of a question model and its training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EncoderShape {
    /// The folder of the initial encoder. Without it, training starts from an encoder of these sizes with
    /// random weights, and trains its vocabulary.
    pub from: Option<PathBuf>,
    /// The size of the hidden states.
    #[schemars(range(min = 1))]
    pub hidden_size: usize,
    /// The number of layers.
    #[schemars(range(min = 1), extend("x-unit" = "layers"))]
    pub layers: usize,
    /// The number of attention heads.
    #[schemars(range(min = 1))]
    pub heads: usize,
    /// The size of the feed-forward layers.
    #[schemars(range(min = 1))]
    pub feed_forward: usize,
    /// The largest size of the vocabulary.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub vocabulary: usize,
    /// The dropout rate.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// The largest number of tokens of question and document.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
}

impl Default for EncoderShape {
    fn default() -> Self {
        Self {
            from: None,
            hidden_size: 128,
            layers: 2,
            heads: 4,
            feed_forward: 256,
            vocabulary: 4000,
            dropout: 0.1,
            max_tokens: 192,
        }
    }
}

/// The loss, the batches and the learning rates of a training, besides `[reasoner.optimizer]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ObjectiveOptions {
    /// EmbedKGQA's smoothing of answers. With a value s above 0, an answer among n entities weighs 1 - s + 1/n and another
    /// entity 1/n, each divided by the sum of all weights, as in the code of KoRC's authors. With 0, only answers weigh.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub smoothing: f64,
    /// The factor of the norm penalty of EmbedKGQA's trained vectors. A batch adds the sum of their cubic norms to the sum of
    /// its losses.
    #[schemars(range(min = 0))]
    pub norm_penalty: f64,
    /// The largest number of questions of a batch. Without it, only `tokens-per-batch` of the optimizer limits a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-unit" = "questions"))]
    pub questions_per_batch: Option<usize>,
    /// The highest learning rate of the layers over the encoder. Without it, it is that of the optimizer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub head_learning_rate: Option<f64>,
}

/// The entity where a model starts, which the document hides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Topic {
    /// The question's `topic_entity`. The code of KoRC's authors gives it to EmbedKGQA and TransferNet. A question without one
    /// has no answer.
    #[default]
    Given,
    /// A vector that the model computes from document and question, without the hidden entity. Only EmbedKGQA.
    Text,
    /// Attention over the entities that the document names, without the hidden entity. The question's words alone make the
    /// query. It is no part of the KoRC paper.
    Names,
}

impl Topic {
    /// The value in models of older versions.
    pub(super) fn names() -> Self {
        Self::Names
    }

    /// Whether it is that value.
    pub(super) fn is_names(&self) -> bool {
        *self == Self::Names
    }
}

/// The form of a TransferNet: how an entity's weight moves along its edges at a step, and how a step reads the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Edges {
    /// The original TransferNet (Shi et al., 2021), which the code of KoRC's authors has too. A relation's weight is the sigmoid
    /// of its score. Weights that arrive at an entity are added and cut at 1. The loss is the squared error, in which answers
    /// count a hundredfold. The query is the output of the encoder's pooler; an encoder without a pooler gets
    /// a new one. The query of a step has a hyperbolic tangent, attention is not scaled, and all steps share one layer that
    /// scores relations.
    #[default]
    Sum,
    /// This project's own form with graph attention (Veličković et al., 2018): an entity divides its weight by the softmax of
    /// the relations' scores over its edges. The query is the first token's state, attention is scaled, and each step has a
    /// separate layer that scores relations.
    Attention,
    /// As `attention`, but a relation's weight is the softmax of its score over all relations. An entity divides it evenly among
    /// its neighbours by that relation. It is no part of the papers.
    Share,
}

impl Edges {
    /// The value in models of older versions.
    pub(super) fn share() -> Self {
        Self::Share
    }

    /// Whether it is that value.
    pub(super) fn is_share(&self) -> bool {
        *self == Self::Share
    }
}

/// How a step of a TransferNet reads the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// As the original: a pooled query, a hyperbolic tangent, products without a scale, one layer of relations.
    Original,
    /// The first token's state as the query, scaled products, a layer of relations for each step.
    Separate,
}

impl Reading {
    /// That of new models with these edges.
    pub fn of(edges: Edges) -> Self {
        if edges == Edges::Sum { Self::Original } else { Self::Separate }
    }

    /// The value in models of older versions.
    pub(super) fn separate() -> Self {
        Self::Separate
    }

    /// Whether it is that value.
    pub(super) fn is_separate(&self) -> bool {
        *self == Self::Separate
    }
}

/// `kind = "embed-kgqa"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EmbedOptions {
    /// The folder of the model, which training writes.
    pub model: PathBuf,
    /// The number of complex dimensions of an entity's vector. The default is 64. Only without `embedding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub rank: Option<usize>,
    /// The folder of a ComplEx of the same knowledge base, for the vectors of entities. Without it, they are
    /// random at first, and trained with the questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding: Option<PathBuf>,
    /// Whether the vectors of `embedding` are fine-tuned with the questions.
    #[serde(default)]
    pub train_entities: bool,
    /// The entity where the model starts: `given`, `text` or `names`. A trained model keeps its own.
    #[serde(default)]
    pub topic: Topic,
    /// Whether the vector of that entity, and its product with the question's, are normalised over batches. A trained model
    /// keeps its own.
    #[serde(default)]
    pub batch_normalisation: bool,
    /// `[reasoner.encoder]`: the encoder of question and document.
    #[serde(default)]
    pub encoder: EncoderShape,
    /// `[reasoner.objective]`: the loss, the batches and the learning rates of a training, besides `[reasoner.optimizer]`.
    #[serde(default)]
    pub objective: ObjectiveOptions,
    /// `[reasoner.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

/// `kind = "embed-kgqa-star"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EmbedStarOptions {
    /// The folder of the model, which training writes.
    pub model: PathBuf,
    /// The number of complex dimensions of an entity's vector. The default is 64. Only without `embedding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub rank: Option<usize>,
    /// The folder of a ComplEx for the initial vectors of entities. Without it, they are random at first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding: Option<PathBuf>,
    /// The part of the knowledge base with vectors: the entities that the documents of training and validation name, and those
    /// within this number of triples of them. Other entities are never answers.
    #[serde(default = "reach")]
    #[schemars(extend("x-unit" = "triples"))]
    pub reach: usize,
    /// Whether the part also has the entities of the tests: those that their documents name, and given ones. Answers are not
    /// read.
    #[serde(default)]
    pub with_tests: bool,
    /// The entity where the model starts: `given`, `text` or `names`. A given entity is in the part too.
    #[serde(default)]
    pub topic: Topic,
    /// Whether the vector of that entity, and its product with the question's, are normalised over batches. A trained model
    /// keeps its own.
    #[serde(default)]
    pub batch_normalisation: bool,
    /// `[reasoner.encoder]`: the encoder of question and document.
    #[serde(default)]
    pub encoder: EncoderShape,
    /// `[reasoner.objective]`: the loss, the batches and the learning rates of a training, besides `[reasoner.optimizer]`.
    #[serde(default)]
    pub objective: ObjectiveOptions,
    /// `[reasoner.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

fn reach() -> usize {
    2
}

/// `kind = "transfer-net"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TransferOptions {
    /// The folder of the model, which training writes.
    pub model: PathBuf,
    /// The number of steps over the triples.
    #[serde(default = "steps")]
    #[schemars(range(min = 1, max = 8), extend("x-unit" = "steps"))]
    pub steps: usize,
    /// The entity where the model starts: `given` or `names`. A trained model keeps its own.
    #[serde(default)]
    pub topic: Topic,
    /// The form: `sum`, `attention` or `share`. A trained model keeps its own.
    #[serde(default)]
    pub edges: Edges,
    /// `[reasoner.encoder]`: the encoder of question and document.
    #[serde(default)]
    pub encoder: EncoderShape,
    /// `[reasoner.objective]`: the loss, the batches and the learning rates of a training, besides `[reasoner.optimizer]`.
    #[serde(default)]
    pub objective: ObjectiveOptions,
    /// `[reasoner.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
}

fn steps() -> usize {
    2
}
