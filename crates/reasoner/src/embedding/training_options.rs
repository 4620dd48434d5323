//! What is said of an embedding's training. These types' documentation is the manual.

use serde::{Deserialize, Serialize};
use sporran_kernels::TrainingPrecision;

/// What a question is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regime {
    /// Each triple asks for its object and for its subject, among all entities. With cross-entropy, equal questions of a
    /// batch are asked once and share their dropout.
    OneVsAll,
    /// Each pair of entity and relation asks once for all its answers, among all entities. Several times as fast.
    #[default]
    KvsAll,
    /// Each triple is compared with triples in which an entity is replaced by another, drawn uniformly.
    NegativeSampling,
}

/// What is minimised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossKind {
    /// The cross-entropy of the softmax over all that a question is compared with.
    #[default]
    CrossEntropy,
    /// The binary cross-entropy of each; negatives by their mean.
    Binary,
    /// Negative sampling: how far a negative's score comes nearer than `margin` to the answer's, at least 0.
    Margin,
    /// Negative sampling: the binary cross-entropy, negatives weighted by the softmax of their scores (Sun et al., 2019).
    SelfAdversarial,
}

/// What a question counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// As many as it has answers, so that the loss of `kvs-all` is that of `one-vs-all`.
    #[default]
    Triple,
    /// One, however many answers it has; with `kvs-all`.
    Question,
    /// Negative sampling: a triple counts the less, the more others have its subject and relation or its relation and object (Sun
    /// et al., 2019).
    Subsampled,
}

/// How values follow their gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptimizerKind {
    /// Adagrad (Duchi et al., 2011).
    #[default]
    Adagrad,
    /// Adam (Kingma and Ba, 2015); with negative sampling or `sampled-entities` an entity's moments move only where a batch has it.
    Adam,
}

/// `[embedding.training.regularizer]`: `weight * sum |x|^power` of the vectors of subject, relation and object, on
/// average over a batch's triples. For ComplEx |x| is that of complex numbers: with power 3 that is N3 (Lacroix et al.,
/// 2018).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Regularizer {
    /// 2 or 3.
    pub power: u8,
    /// Of entities.
    pub entity: f64,
    /// Of relations.
    pub relation: f64,
    /// Whether a vector counts as often as a batch's triples have it; otherwise each of the model's once a batch (with
    /// negative sampling or `sampled-entities`, each that the batch has or draws).
    pub weighted: bool,
}

impl Default for Regularizer {
    fn default() -> Self {
        Self { power: 3, entity: 0.0, relation: 0.0, weighted: true }
    }
}

/// `[embedding.training]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TrainingOptions {
    /// `one-vs-all`, `kvs-all` or `negative-sampling`.
    pub regime: Regime,
    /// `cross-entropy` or `binary`; with negative sampling also `margin` and `self-adversarial`.
    pub loss: LossKind,
    /// `triple`, `question` or `subsampled`.
    pub weight: Weight,
    /// The answers that a question is asked for at once; with `kvs-all`, `cross-entropy` and `weight = "triple"`. One that has more is
    /// asked several times a pass, each time for a part of them: the same loss over a pass, but batches are more alike where some
    /// questions have thousands of answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_answers: Option<usize>,
    /// A batch's questions are compared not with all entities but with those that the batch has and so many of the others, drawn for
    /// it, which stand for all the others, each for as many (complementary sum sampling; Botev et al., 2017); with `kvs-all` or
    /// `one-vs-all`, `cross-entropy` and no `relation-weight`. With many entities a pass takes a fraction of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_entities: Option<usize>,
    /// Share of the target that goes to all entities alike; not with negative sampling.
    pub label_smoothing: f64,
    /// What the cross-entropy of each triple's relation among all counts beside the loss of its entities (Chen et al.,
    /// 2021); for DistMult and ComplEx, not with negative sampling.
    pub relation_weight: f64,
    /// Negatives of each question for an object.
    pub object_negatives: usize,
    /// Negatives of each question for a subject.
    pub subject_negatives: usize,
    /// Questions, side by side in a batch, that are compared with the same negatives. With some dozens of them a pass takes a fraction
    /// of the time, as fewer rows are read and moved.
    pub share_negatives: usize,
    /// The margin of `margin`; what `binary` and `self-adversarial` add to every score.
    pub margin: f64,
    /// What scores are multiplied by before the softmax of `self-adversarial`.
    pub temperature: f64,
    /// Questions of a batch. Each triple is two questions, but for `kvs-all`.
    pub batch_size: usize,
    /// Passes over the training triples, at most.
    pub epochs: usize,
    /// `adagrad` or `adam`.
    pub optimizer: OptimizerKind,
    /// Its rate at first.
    pub learning_rate: f64,
    /// `f32`, or `bf16` for the products of the vectors of questions and of all entities; vectors and their steps stay in 32 bits.
    pub precision: TrainingPrecision,
    /// `[embedding.training.regularizer]`
    pub regularizer: Regularizer,
    /// Passes between evaluations on the valid part.
    pub evaluate_every: usize,
    /// Evaluations without a better score before training ends.
    pub patience: usize,
    /// What the rate is multiplied by after `decay-patience` evaluations without a better score.
    pub decay: f64,
    /// See `decay`.
    pub decay_patience: usize,
    /// Passes behind which the rate is multiplied by `decay` whatever the scores are.
    pub milestones: Vec<usize>,
    /// Behind each pass the values learned so far are mixed into a moving average, of which this share stays (Polyak and Juditsky,
    /// 1992); in the first passes it is their plain mean. The average is what is judged and written; what learns is untouched by it.
    /// Without, those are the values themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema_decay: Option<f64>,
}

impl Default for TrainingOptions {
    fn default() -> Self {
        Self {
            regime: Regime::default(),
            loss: LossKind::default(),
            weight: Weight::default(),
            max_answers: None,
            sampled_entities: None,
            label_smoothing: 0.0,
            relation_weight: 0.0,
            object_negatives: 64,
            subject_negatives: 64,
            share_negatives: 1,
            margin: 0.0,
            temperature: 1.0,
            batch_size: 512,
            epochs: 400,
            optimizer: OptimizerKind::default(),
            learning_rate: 0.1,
            precision: TrainingPrecision::default(),
            regularizer: Regularizer::default(),
            evaluate_every: 5,
            patience: 10,
            decay: 0.95,
            decay_patience: 4,
            milestones: Vec::new(),
            ema_decay: None,
        }
    }
}
