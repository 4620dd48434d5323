//! The options of an embedding model, and their constraints with the training options. These docs are the
//! manual.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Check, Document};

use super::training_options::{LossKind, Regime, TrainingOptions, Weight};
use crate::{Error, Result};

/// The models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// Translations: the object is near the subject plus the relation (Bordes et al., 2013).
    TransE,
    /// A product of three vectors (Yang et al., 2015).
    DistMult,
    /// A product of three vectors of complex numbers, the object conjugated (Trouillon et al., 2016).
    ComplEx,
    /// Rotations in the complex plane (Sun et al., 2019).
    RotatE,
    /// One matrix a relation (Nickel et al., 2011).
    Rescal,
    /// One matrix a relation, a sum of shared matrices (Balažević et al., 2019).
    TuckEr,
    /// A convolution over subject and relation (Dettmers et al., 2018). It needs `reciprocal`.
    ConvE,
}

/// The distance of TransE and RotatE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Norm {
    /// The sum of absolute differences; for complex numbers, of their moduli.
    L1,
    /// The Euclidean distance. Among all entities it is computed with matrix products.
    L2,
}

/// The distribution of the initial values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Initial {
    /// A normal distribution with standard deviation `initial-scale`.
    Normal,
    /// Uniform between `-initial-scale` and `initial-scale`.
    Uniform,
    /// A normal distribution of variance 2 / (rows + columns), scaled by `initial-scale` (Glorot and Bengio,
    /// 2010).
    #[default]
    XavierNormal,
    /// The uniform distribution of that variance.
    XavierUniform,
}

/// How training keeps the entity vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Storage {
    /// In 32 bits.
    #[default]
    F32,
    /// In 16 bits with stochastic rounding, so that small steps are not lost. It needs negative sampling or
    /// `sampled-entities`.
    F16,
}

/// `[embedding]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EmbeddingOptions {
    /// The model: `transe`, `distmult`, `complex`, `rotate`, `rescal`, `tucker` or `conve`.
    pub model: ModelKind,
    /// Length of an entity vector. Complex numbers count as two values.
    #[serde(default = "dim")]
    #[schemars(range(min = 1))]
    pub dim: usize,
    /// TuckER: length of a relation vector. The default is `dim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub relation_dim: Option<usize>,
    /// The distance of TransE and RotatE: `l1` or `l2`. The default is that of the papers: `l2` for TransE,
    /// `l1` for RotatE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<Norm>,
    /// Whether each relation has a second vector for questions from the object to the subject.
    #[serde(default = "yes")]
    pub reciprocal: bool,
    /// `normal`, `uniform`, `xavier-normal` or `xavier-uniform`.
    #[serde(default)]
    pub initial: Initial,
    /// Its standard deviation, bound or gain.
    #[serde(default = "one")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub initial_scale: f64,
    /// Dropout of the entity vector of a question.
    #[serde(default)]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub entity_dropout: f64,
    /// Dropout of relation vectors (RESCAL: of relation matrices).
    #[serde(default)]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub relation_dropout: f64,
    /// Dropout of candidate vectors, with one mask a batch. With negative sampling, each sampled entity has a
    /// separate mask.
    #[serde(default)]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub candidate_dropout: f64,
    /// ConvE: dropout of the convolution's maps.
    #[serde(default)]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub map_dropout: f64,
    /// ConvE: dropout after the projection.
    #[serde(default)]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub hidden_dropout: f64,
    /// ConvE: the number of rows that a vector is reshaped to.
    #[serde(default = "height")]
    #[schemars(range(min = 1))]
    pub height: usize,
    /// ConvE: the number of 3 by 3 filters.
    #[serde(default = "filters")]
    #[schemars(range(min = 1))]
    pub filters: usize,
    /// ConvE: whether batch normalisation learns scales and shifts, as in the paper. Without them normalised
    /// values keep a variance of 1, so that question vectors do not grow.
    #[serde(default = "yes")]
    pub affine: bool,
    /// `f32` or `f16`.
    #[serde(default)]
    pub storage: Storage,
    /// `[embedding.training]`
    #[serde(default)]
    pub training: TrainingOptions,
}

fn dim() -> usize {
    128
}
fn yes() -> bool {
    true
}
fn one() -> f64 {
    1.0
}
fn height() -> usize {
    8
}
fn filters() -> usize {
    32
}

impl EmbeddingOptions {
    /// Returns all mistakes, each with its key relative to `embedding`.
    #[must_use]
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let training = &self.training;
        let mut check = |key, holds: bool, expected: &str, value: &dyn std::fmt::Display| {
            if !holds {
                found.push((key, format!("expected {expected}, found {value}")));
            }
        };
        check("dim", self.dim > 0, "at least 1", &self.dim);
        let is_complex = matches!(self.model, ModelKind::ComplEx | ModelKind::RotatE);
        check("dim", !is_complex || self.dim.is_multiple_of(2), "an even number", &self.dim);
        if self.model == ModelKind::ConvE {
            let fits =
                self.height >= 2 && self.dim.is_multiple_of(self.height) && self.dim / self.height >= 3;
            check("height", fits, "a divisor of `dim` of at least 2 that leaves 3 columns", &self.height);
            check("filters", self.filters > 0, "at least 1", &self.filters);
            check("reciprocal", self.reciprocal, "`true` for ConvE", &self.reciprocal);
        }
        check("relation-dim", self.relation_dim != Some(0), "at least 1", &0);
        let is_tucker = self.model == ModelKind::TuckEr;
        check(
            "relation-dim",
            is_tucker || self.relation_dim.is_none(),
            "it only with `model = \"tucker\"`",
            &"another model",
        );
        for (key, rate) in [
            ("entity-dropout", self.entity_dropout),
            ("relation-dropout", self.relation_dropout),
            ("candidate-dropout", self.candidate_dropout),
            ("map-dropout", self.map_dropout),
            ("hidden-dropout", self.hidden_dropout),
            ("training.label-smoothing", training.label_smoothing),
        ] {
            check(key, (0.0..1.0).contains(&rate), "a number from 0 to below 1", &rate);
        }
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let not_negative = |value: f64| value.is_finite() && value >= 0.0;
        check("initial-scale", positive(self.initial_scale), "a number above 0", &self.initial_scale);
        check(
            "training.learning-rate",
            positive(training.learning_rate),
            "a number above 0",
            &training.learning_rate,
        );
        check(
            "training.decay",
            training.decay > 0.0 && training.decay <= 1.0,
            "a number above 0 and up to 1",
            &training.decay,
        );
        check("training.margin", not_negative(training.margin), "a number of at least 0", &training.margin);
        check(
            "training.temperature",
            not_negative(training.temperature),
            "a number of at least 0",
            &training.temperature,
        );
        for (key, count) in [
            ("training.batch-size", training.batch_size),
            ("training.epochs", training.epochs),
            ("training.evaluate-every", training.evaluate_every),
            ("training.patience", training.patience),
            ("training.share-negatives", training.share_negatives),
        ] {
            check(key, count > 0, "at least 1", &count);
        }
        let samples = training.regime == Regime::NegativeSampling;
        let groups = training.regime == Regime::KvsAll;
        let (fits, expected) = match training.weight {
            Weight::Triple => (true, ""),
            Weight::Question => (groups, "`question` only with `kvs-all`"),
            Weight::Subsampled => (samples, "`subsampled` only with negative sampling"),
        };
        check("training.weight", fits, expected, &"another regime");
        let weight = training.relation_weight;
        check("training.relation-weight", not_negative(weight), "a number of at least 0", &weight);
        let is_linear = matches!(self.model, ModelKind::DistMult | ModelKind::ComplEx);
        check(
            "training.relation-weight",
            weight == 0.0 || (is_linear && !samples),
            "0 but for DistMult and ComplEx among all entities",
            &weight,
        );
        check("training.max-answers", training.max_answers != Some(0), "at least 1", &0);
        // The losses of the parts sum to the whole loss only if each answer has a separate loss of equal
        // weight.
        let adds_up = groups && training.weight == Weight::Triple && training.loss == LossKind::CrossEntropy;
        check(
            "training.max-answers",
            training.max_answers.is_none() || adds_up,
            "it only with `kvs-all`, `cross-entropy` and `weight = \"triple\"`",
            &"another regime, loss or weight",
        );
        let is_softmax = !samples && training.loss == LossKind::CrossEntropy && weight == 0.0;
        check("training.sampled-entities", training.sampled_entities != Some(0), "at least 1", &0);
        check(
            "training.sampled-entities",
            training.sampled_entities.is_none() || is_softmax,
            "it only with `cross-entropy`, without negative sampling or `relation-weight`",
            &"another regime or loss, or a `relation-weight`",
        );
        let decay = training.ema_decay.unwrap_or_default();
        check("training.ema-decay", (0.0..1.0).contains(&decay), "a number from 0 to below 1", &decay);
        let fits = training.ema_decay.is_none() || self.storage == Storage::F32;
        check("training.ema-decay", fits, "it only with `storage = \"f32\"`", &"f16");
        let regularizer = &training.regularizer;
        check("training.regularizer.power", matches!(regularizer.power, 2 | 3), "2 or 3", &regularizer.power);
        check(
            "training.regularizer.entity",
            not_negative(regularizer.entity),
            "a number of at least 0",
            &regularizer.entity,
        );
        check(
            "training.regularizer.relation",
            not_negative(regularizer.relation),
            "a number of at least 0",
            &regularizer.relation,
        );
        if samples {
            let negatives = training.object_negatives + training.subject_negatives;
            check(
                "training.object-negatives",
                negatives > 0,
                "negatives of objects or of subjects",
                &negatives,
            );
            check(
                "training.label-smoothing",
                training.label_smoothing == 0.0,
                "0 with negative sampling",
                &training.label_smoothing,
            );
        } else {
            let fits = matches!(training.loss, LossKind::CrossEntropy | LossKind::Binary);
            check("training.loss", fits, "`cross-entropy` or `binary` without negative sampling", &"another");
            let own = training.share_negatives <= 1;
            check("training.share-negatives", own, "it only with negative sampling", &"another regime");
            let fits = self.storage == Storage::F32 || training.sampled_entities.is_some();
            check("storage", fits, "`f32` without negative sampling or `sampled-entities`", &"f16");
        }
        found
    }

    /// Checks whether these options can be used for training.
    ///
    /// # Errors
    /// [`Error::Options`] with the first mistake.
    pub fn check(&self) -> Result<()> {
        match self.mistakes().into_iter().next() {
            Some((key, message)) => Err(Error::Options { key, message }),
            None => Ok(()),
        }
    }
}

impl Check for EmbeddingOptions {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        for (name, message) in self.mistakes() {
            document.report_key(&format!("{key}.{name}"), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(json: serde_json::Value) -> EmbeddingOptions {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn conflicting_options_are_reported_by_key() {
        let good = options(serde_json::json!({ "model": "complex" }));
        assert_eq!(good.mistakes(), []);
        assert!(good.check().is_ok());
        let cases = [
            (serde_json::json!({ "model": "rotate", "dim": 5 }), "dim"),
            (serde_json::json!({ "model": "conve", "dim": 20, "height": 3 }), "height"),
            (
                serde_json::json!({ "model": "conve", "dim": 20, "height": 4, "reciprocal": false }),
                "reciprocal",
            ),
            (serde_json::json!({ "model": "transe", "relation-dim": 5 }), "relation-dim"),
            (serde_json::json!({ "model": "transe", "entity-dropout": 1.0 }), "entity-dropout"),
            (serde_json::json!({ "model": "transe", "training": { "loss": "margin" } }), "training.loss"),
            (serde_json::json!({ "model": "transe", "storage": "f16" }), "storage"),
            (
                serde_json::json!({ "model": "transe", "training": { "weight": "subsampled" } }),
                "training.weight",
            ),
            (
                serde_json::json!({ "model": "transe", "training": { "regime": "one-vs-all", "weight": "question" } }),
                "training.weight",
            ),
            (
                serde_json::json!({ "model": "transe", "training": { "weight": "question", "max-answers": 4 } }),
                "training.max-answers",
            ),
            (
                serde_json::json!({ "model": "transe", "training": { "max-answers": 0 } }),
                "training.max-answers",
            ),
            (
                serde_json::json!({ "model": "transe", "training": { "sampled-entities": 0 } }),
                "training.sampled-entities",
            ),
            (
                serde_json::json!({ "model": "transe", "training": { "loss": "binary", "sampled-entities": 9 } }),
                "training.sampled-entities",
            ),
            (
                serde_json::json!({ "model": "complex", "training": { "relation-weight": 1, "sampled-entities": 9 } }),
                "training.sampled-entities",
            ),
            (
                serde_json::json!({ "model": "transe", "training": { "share-negatives": 8 } }),
                "training.share-negatives",
            ),
            (
                serde_json::json!({ "model": "transe", "training": { "share-negatives": 0 } }),
                "training.share-negatives",
            ),
            (
                serde_json::json!({ "model": "transe", "training": { "ema-decay": 1.0 } }),
                "training.ema-decay",
            ),
            (
                serde_json::json!({ "model": "transe", "storage": "f16", "training": { "sampled-entities": 9, "ema-decay": 0.5 } }),
                "training.ema-decay",
            ),
            (
                serde_json::json!({ "model": "transe", "training": { "regularizer": { "power": 4 } } }),
                "training.regularizer.power",
            ),
        ];
        for (json, key) in cases {
            let found = options(json).mistakes();
            assert_eq!(found.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [key], "{found:?}");
        }
    }
}
