//! The options of a network and its training. These docs are the manual.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// `[network]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NetworkOptions {
    /// The size of a node's row, a multiple of 32.
    #[schemars(range(min = 1))]
    pub dim: usize,
    /// The number of layers, which is the longest path length.
    #[schemars(range(min = 1), extend("x-unit" = "layers"))]
    pub layers: usize,
    /// The folder of a network of the same size to start from, possibly trained on another graph. Relation
    /// parameters are copied by name. Other relations start untrained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// `[network.training]`
    pub training: NetworkTraining,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self { dim: 32, layers: 6, from: None, training: NetworkTraining::default() }
    }
}

/// `[network.training]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NetworkTraining {
    /// The share of a question's answers that are targets, at least one. The edges to the other answers stay
    /// in the graph.
    #[schemars(extend("exclusiveMinimum" = 0), range(max = 1))]
    pub held_out: f64,
    /// Trains on the subgraph of this many entities, those with the most triples, and validates on it. The
    /// cost of a question is proportional to the number of edges. So training on a large graph is faster if
    /// it starts `from` a network of its core.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub core: Option<usize>,
    /// The number of questions in a batch.
    #[schemars(range(min = 1), extend("x-unit" = "questions"))]
    pub batch_size: usize,
    /// The number of questions sampled each epoch; all if not given.
    #[schemars(range(min = 1), extend("x-unit" = "questions"))]
    pub questions: Option<usize>,
    /// The largest number of epochs.
    #[schemars(range(min = 1), extend("x-unit" = "epochs"))]
    pub epochs: usize,
    /// The learning rate of Adam.
    #[schemars(extend("exclusiveMinimum" = 0), range(max = 1))]
    pub learning_rate: f64,
    /// Epochs between evaluations on the validation part.
    #[schemars(range(min = 1), extend("x-unit" = "epochs"))]
    pub evaluate_every: usize,
    /// The number of validation triples to rank, sampled once; all if not given.
    #[schemars(range(min = 1), extend("x-unit" = "triples"))]
    pub judged: Option<usize>,
    /// Evaluations without improvement before training ends.
    #[schemars(range(min = 1), extend("x-unit" = "evaluations"))]
    pub patience: usize,
    /// The factor of the learning rate after an evaluation without improvement.
    #[schemars(extend("exclusiveMinimum" = 0), range(max = 1))]
    pub decay: f64,
}

impl Default for NetworkTraining {
    fn default() -> Self {
        Self {
            held_out: 0.3,
            core: None,
            batch_size: 32,
            questions: None,
            epochs: 20,
            learning_rate: 0.005,
            evaluate_every: 1,
            judged: None,
            patience: 5,
            decay: 0.5,
        }
    }
}

impl NetworkOptions {
    /// Returns all mistakes, each with its key relative to `network`.
    #[must_use]
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let training = &self.training;
        let mut check = |key, holds: bool, expected: &str, value: &dyn std::fmt::Display| {
            if !holds {
                found.push((key, format!("expected {expected}, found {value}")));
            }
        };
        check("dim", self.dim > 0 && self.dim.is_multiple_of(32), "a multiple of 32", &self.dim);
        let share = training.held_out;
        check("training.held-out", share > 0.0 && share <= 1.0, "a number above 0 and up to 1", &share);
        let rate = training.learning_rate;
        check("training.learning-rate", rate.is_finite() && rate > 0.0, "a number above 0", &rate);
        let decay = training.decay;
        check("training.decay", decay > 0.0 && decay <= 1.0, "a number above 0 and up to 1", &decay);
        for (key, count) in [
            ("layers", self.layers),
            ("training.core", training.core.unwrap_or(1)),
            ("training.batch-size", training.batch_size),
            ("training.questions", training.questions.unwrap_or(1)),
            ("training.epochs", training.epochs),
            ("training.evaluate-every", training.evaluate_every),
            ("training.judged", training.judged.unwrap_or(1)),
            ("training.patience", training.patience),
        ] {
            check(key, count > 0, "at least 1", &count);
        }
        found
    }

    /// Checks whether these options can be used for training.
    ///
    /// # Errors
    /// [`Error::Argument`] with the first mistake.
    pub fn check(&self) -> Result<()> {
        match self.mistakes().into_iter().next() {
            Some((key, message)) => Err(Error::Argument(format!("`network.{key}`: {message}"))),
            None => Ok(()),
        }
    }
}
