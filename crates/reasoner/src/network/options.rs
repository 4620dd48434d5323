//! What is said of a network and its training. These types' documentation is the manual.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// `[network]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NetworkOptions {
    /// Values of a node's row, a multiple of 32.
    pub dim: usize,
    /// Layers: the most steps that a path has.
    pub layers: usize,
    /// The folder of a network of the same size to start from, trained on another graph perhaps. What it knows of relations is taken over
    /// by their names; others begin anew.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NetworkTraining {
    /// Share of a question's answers that it is asked for each time, at least one; the edges to the others stay in the graph.
    pub held_out: f64,
    /// Learns on the graph of so many entities alone, those with the most triples, and is judged on the valid triples between them. A
    /// question costs as much as its graph has edges, so a network that starts `from` one of a large graph's core is there sooner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// Questions of a batch.
    pub batch_size: usize,
    /// Questions of a pass, drawn anew for each; all where it is not given.
    pub questions: Option<usize>,
    /// Passes at most.
    pub epochs: usize,
    /// Adam's rate.
    pub learning_rate: f64,
    /// Passes between evaluations on the valid part.
    pub evaluate_every: usize,
    /// Triples of the valid part that are ranked, drawn once; all where it is not given.
    pub judged: Option<usize>,
    /// Evaluations without a better score before training ends.
    pub patience: usize,
    /// What the rate is multiplied by after an evaluation without a better score.
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
    /// What is wrong with them: each mistake with its key below `network`.
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

    /// Whether training can follow them.
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
