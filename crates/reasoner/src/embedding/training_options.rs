//! The options of an embedding's training. These docs are the manual.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kernels::TrainingPrecision;

/// The questions and the candidates that they are scored against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Regime {
    /// Each triple is a question for its object and one for its subject, among all entities. With
    /// cross-entropy, equal questions of a batch are scored once and share their dropout mask.
    OneVsAll,
    /// Each pair of entity and relation is one question for all its answers, among all entities. Several
    /// times faster.
    #[default]
    KvsAll,
    /// Each triple is scored against triples in which a uniformly sampled entity replaces one of its
    /// entities.
    NegativeSampling,
}

/// The loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LossKind {
    /// The cross-entropy of the softmax over all candidates.
    #[default]
    CrossEntropy,
    /// The binary cross-entropy of each candidate; the mean over negatives.
    Binary,
    /// Negative sampling: max(0, `margin` + score of the negative - score of the answer).
    Margin,
    /// Negative sampling: the binary cross-entropy, with negatives weighted by the softmax of their scores
    /// (Sun et al., 2019).
    SelfAdversarial,
}

/// The weight of a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// The number of its answers, so that the loss of `kvs-all` equals that of `one-vs-all`.
    #[default]
    Triple,
    /// One for every question; with `kvs-all`.
    Question,
    /// Negative sampling: frequent pairs of subject and relation, or of relation and object, lower a triple's
    /// weight (Sun et al., 2019).
    Subsampled,
}

/// The optimiser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OptimizerKind {
    /// Adagrad (Duchi et al., 2011).
    #[default]
    Adagrad,
    /// Adam (Kingma and Ba, 2015). With negative sampling or `sampled-entities`, an entity's moments change
    /// only in batches that contain it.
    Adam,
}

/// `[embedding.training.regularizer]`: `weight * sum |x|^power` of the vectors of subject, relation and
/// object, the mean over a batch's triples. For ComplEx |x| is the modulus: with power 3 this is N3 (Lacroix
/// et al., 2018).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Regularizer {
    /// 2 or 3.
    #[schemars(range(min = 2, max = 3))]
    pub power: u8,
    /// The weight for entity vectors.
    #[schemars(range(min = 0))]
    pub entity: f64,
    /// The weight for relation vectors.
    #[schemars(range(min = 0))]
    pub relation: f64,
    /// Whether a vector counts once for each occurrence in a batch's triples. Otherwise each vector of the
    /// model counts once a batch (with negative sampling or `sampled-entities`, each that the batch
    /// contains).
    pub weighted: bool,
}

impl Default for Regularizer {
    fn default() -> Self {
        Self { power: 3, entity: 0.0, relation: 0.0, weighted: true }
    }
}

/// `[embedding.training]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TrainingOptions {
    /// `one-vs-all`, `kvs-all` or `negative-sampling`.
    pub regime: Regime,
    /// `cross-entropy` or `binary`; with negative sampling also `margin` and `self-adversarial`.
    pub loss: LossKind,
    /// `triple`, `question` or `subsampled`.
    pub weight: Weight,
    /// The largest number of answers of a question; with `kvs-all`, `cross-entropy` and `weight = "triple"`.
    /// A question with more answers is split into several. The loss of an epoch is the same. Batches become
    /// more uniform if some questions have thousands of answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_answers: Option<usize>,
    /// The number of sampled entities a batch. A batch's questions are scored against its own entities and
    /// these, which represent all others (complementary sum sampling; Botev et al., 2017). It needs `kvs-all`
    /// or `one-vs-all`, `cross-entropy` and no `relation-weight`. Epochs are much faster with many entities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_entities: Option<usize>,
    /// Share of the target that is spread evenly over all entities; not with negative sampling.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub label_smoothing: f64,
    /// Weight of the auxiliary relation-prediction loss (Chen et al., 2021); for DistMult and ComplEx, not
    /// with negative sampling.
    #[schemars(range(min = 0))]
    pub relation_weight: f64,
    /// Negatives of each question for an object.
    pub object_negatives: usize,
    /// Negatives of each question for a subject.
    pub subject_negatives: usize,
    /// Number of neighbouring questions in a batch that share negatives. With a few dozen, epochs are much
    /// faster, because fewer rows are read and updated.
    #[schemars(range(min = 1), extend("x-unit" = "questions"))]
    pub share_negatives: usize,
    /// The margin of `margin`; `binary` and `self-adversarial` add it to every score.
    #[schemars(range(min = 0))]
    pub margin: f64,
    /// The factor of scores before the softmax of `self-adversarial`.
    #[schemars(range(min = 0))]
    pub temperature: f64,
    /// Questions a batch. Each triple is two questions, except with `kvs-all`.
    #[schemars(range(min = 1), extend("x-unit" = "questions"))]
    pub batch_size: usize,
    /// The largest number of epochs.
    #[schemars(range(min = 1), extend("x-unit" = "epochs"))]
    pub epochs: usize,
    /// `adagrad` or `adam`.
    pub optimizer: OptimizerKind,
    /// The initial learning rate.
    #[schemars(extend("exclusiveMinimum" = 0), range(max = 1))]
    pub learning_rate: f64,
    /// `f32`, or `bf16` for the products of question vectors and all entities. Vectors and updates stay in 32
    /// bits.
    pub precision: TrainingPrecision,
    /// `[embedding.training.regularizer]`
    pub regularizer: Regularizer,
    /// Epochs between evaluations on the validation part.
    #[schemars(range(min = 1), extend("x-unit" = "epochs"))]
    pub evaluate_every: usize,
    /// Evaluations without improvement before training ends.
    #[schemars(range(min = 1), extend("x-unit" = "evaluations"))]
    pub patience: usize,
    /// The factor of the learning rate after `decay-patience` evaluations without improvement.
    #[schemars(extend("exclusiveMinimum" = 0), range(max = 1))]
    pub decay: f64,
    /// Evaluations without improvement before the learning rate decays.
    pub decay_patience: usize,
    /// Epochs after which the learning rate is multiplied by `decay`, whatever the scores are.
    #[schemars(extend("x-unit" = "epochs"))]
    pub milestones: Vec<usize>,
    /// The decay of a moving average of the values, updated after each epoch (Polyak and Juditsky, 1992). The
    /// first epochs use the plain mean. The average is evaluated and written; the training itself does not
    /// use it. Without it, the values themselves are evaluated and written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
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
