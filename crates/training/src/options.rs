//! Training options: steps, learning rate, batch sizes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sporran_checkpoint::{Error, Result};
use sporran_kernels::TrainingPrecision;

use crate::schedule::Decay;

/// The options of a training. The same options, data and first weights give the same weights, bit for bit, whatever
/// the number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TrainingOptions {
    /// The seed of the order of examples and of dropout.
    pub seed: u64,
    /// Optimiser steps in all; the learning rate's schedule ends there.
    #[schemars(range(min = 1))]
    pub steps: u64,
    /// Epochs. If not 0, it replaces `steps`, the last step of an epoch takes the remaining batches, and each epoch ends
    /// with an evaluation.
    #[schemars(extend("x-unit" = "epochs"))]
    pub epochs: u64,
    /// Tokens of one batch. An encoder-decoder counts its padding: (longest source + longest target) x rows.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub tokens_per_batch: usize,
    /// Batches whose gradients make one step.
    #[schemars(range(min = 1), extend("x-unit" = "batches"))]
    pub batches_per_step: usize,
    /// Batches of a step that are worked on at the same time, each on one thread. With 1, a batch's matrix products
    /// use all threads instead.
    #[schemars(range(min = 1), extend("x-unit" = "batches"))]
    pub parallel_batches: usize,
    /// `f32`, or `bf16` for the products of states and weights, and of their gradients, but for LSTMs and on other devices than the
    /// CPU; states, weights and steps stay in 32 bits.
    pub precision: TrainingPrecision,
    /// The highest learning rate, at the end of the warm-up.
    #[schemars(extend("exclusiveMinimum" = 0), range(max = 1))]
    pub learning_rate: f64,
    /// Steps over which the learning rate climbs to its highest. Without this key they are 100, and a tenth of all steps in a
    /// training of fewer than 100 steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "steps"))]
    pub warmup_steps: Option<u64>,
    /// The decay of the learning rate after the warm-up.
    pub decay: Decay,
    /// AdamW's weight decay, times the learning rate; norms, biases and relative positions are left out.
    #[schemars(range(min = 0))]
    pub weight_decay: f64,
    /// AdamW's decay of the mean gradient.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub beta1: f64,
    /// AdamW's decay of the mean squared gradient.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub beta2: f64,
    /// AdamW's addend under the fraction.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub epsilon: f64,
    /// The largest global norm of a step's gradient; larger ones are scaled down to it.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub clip_norm: f64,
    /// The share of a label's probability that is spread over all tokens, where tokens are learned.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub label_smoothing: f32,
    /// Steps between evaluations; 0 evaluates at the end only.
    #[schemars(extend("x-unit" = "steps"))]
    pub evaluate_every: u64,
    /// Evaluations without a better score after which training ends; 0 never ends early.
    #[schemars(extend("x-unit" = "evaluations"))]
    pub patience: u64,
    /// Steps between checkpoints; 0 writes one whenever five minutes have passed. There is one at the end in any case.
    #[schemars(extend("x-unit" = "steps"))]
    pub checkpoint_every: u64,
}

impl Default for TrainingOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            steps: 1000,
            epochs: 0,
            tokens_per_batch: 4096,
            batches_per_step: 1,
            parallel_batches: 1,
            precision: TrainingPrecision::default(),
            learning_rate: 1e-3,
            warmup_steps: None,
            decay: Decay::Linear,
            weight_decay: 0.01,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            clip_norm: 1.0,
            label_smoothing: 0.0,
            evaluate_every: 0,
            patience: 0,
            checkpoint_every: 0,
        }
    }
}

impl TrainingOptions {
    /// The steps of the warm-up where the options say nothing and the training is long enough.
    pub const WARMUP_STEPS: u64 = 100;

    /// The options that keep a training with `other` from giving the same model, with their values here and there; none if
    /// there are none. Options of when checkpoints are written or how batches run in parallel may differ.
    pub(crate) fn differences(&self, other: &Self) -> Option<[String; 2]> {
        let (checkpoint_every, parallel_batches) = (other.checkpoint_every, other.parallel_batches);
        // The default of the warm-up is the same training as its number.
        let [ours, theirs] = [self, other].map(|options| Self {
            warmup_steps: Some(options.warmup_steps.unwrap_or(Self::WARMUP_STEPS)),
            checkpoint_every,
            parallel_batches,
            ..options.clone()
        });
        if ours == theirs {
            return None;
        }
        let [ours, theirs] = [&ours, &theirs].map(|options| match serde_json::to_value(options) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        });
        let changed = |fields: &Map<String, Value>, others: &Map<String, Value>| {
            let different = fields.iter().filter(|(key, value)| others.get(*key) != Some(value));
            different.map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ")
        };
        Some([changed(&ours, &theirs), changed(&theirs, &ours)])
    }

    /// Refuses values that no training can run with.
    ///
    /// # Errors
    /// [`Error::Options`] with the option's name.
    pub fn check(&self) -> Result<()> {
        let wrong = |option, expected: &str, found: String| {
            Err(Error::Options { option, expected: expected.into(), found })
        };
        let counts = [
            ("steps", self.steps),
            ("tokens-per-batch", self.tokens_per_batch as u64),
            ("batches-per-step", self.batches_per_step as u64),
            ("parallel-batches", self.parallel_batches as u64),
        ];
        if let Some((option, found)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return wrong(option, "at least 1", found.to_string());
        }
        for (option, value) in
            [("learning-rate", self.learning_rate), ("epsilon", self.epsilon), ("clip-norm", self.clip_norm)]
        {
            if !(value > 0.0 && value.is_finite()) {
                return wrong(option, "a number above 0", value.to_string());
            }
        }
        for (option, value) in
            [("beta1", self.beta1), ("beta2", self.beta2), ("label-smoothing", self.label_smoothing.into())]
        {
            if !(0.0..1.0).contains(&value) {
                return wrong(option, "at least 0 and below 1", value.to_string());
            }
        }
        if !(self.weight_decay >= 0.0 && self.weight_decay.is_finite()) {
            return wrong("weight-decay", "a number of at least 0", self.weight_decay.to_string());
        }
        if self.epochs == 0 {
            self.warmup(self.steps)?;
        }
        Ok(())
    }

    /// Refuses label smoothing, which has no meaning `where_what`.
    pub fn refuse_smoothing(&self, where_what: &str) -> Result<()> {
        if self.label_smoothing == 0.0 {
            return Ok(());
        }
        Err(Error::Options {
            option: "label-smoothing",
            expected: format!("0 where {where_what}"),
            found: self.label_smoothing.to_string(),
        })
    }

    /// The steps of the warm-up of a training of `steps` steps.
    ///
    /// # Errors
    /// [`Error::Options`] for a given number that is larger than `steps`.
    pub(crate) fn warmup(&self, steps: u64) -> Result<u64> {
        match self.warmup_steps {
            None if steps < Self::WARMUP_STEPS => Ok(steps / 10),
            None => Ok(Self::WARMUP_STEPS),
            Some(given) if given > steps => Err(Error::Options {
                option: "warmup-steps",
                expected: format!(
                    "at most the {steps} steps of the training (set it in the table `optimizer`)"
                ),
                found: given.to_string(),
            }),
            Some(given) => Ok(given),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_usable() {
        TrainingOptions::default().check().unwrap();
    }

    #[test]
    fn the_default_warm_up_is_a_tenth_of_a_small_training() {
        let default = TrainingOptions::default();
        for (steps, expected) in [(1000, 100), (100, 100), (99, 9), (5, 0)] {
            assert_eq!(default.warmup(steps).unwrap(), expected);
        }
        TrainingOptions { steps: 5, ..TrainingOptions::default() }.check().unwrap();
        let given = TrainingOptions { warmup_steps: Some(100), ..TrainingOptions::default() };
        assert_eq!(given.warmup(100).unwrap(), 100);
        assert!(given.warmup(99).is_err());
        assert_eq!((default.differences(&given), given.differences(&default)), (None, None));
    }

    #[test]
    fn options_that_prevent_resuming_are_reported() {
        let here =
            TrainingOptions { steps: 30, checkpoint_every: 1, learning_rate: 0.5, ..Default::default() };
        let there = TrainingOptions { checkpoint_every: 9, parallel_batches: 3, ..here.clone() };
        assert_eq!(here.differences(&there), None);
        let there = TrainingOptions { steps: 40, learning_rate: 0.25, ..there };
        let expected = ["steps = 30, learning-rate = 0.5", "steps = 40, learning-rate = 0.25"];
        assert_eq!(here.differences(&there), Some(expected.map(str::to_owned)));
    }

    #[test]
    fn unusable_values_are_named() {
        let cases = [
            (TrainingOptions { steps: 0, warmup_steps: Some(0), ..Default::default() }, "steps"),
            (TrainingOptions { learning_rate: f64::NAN, ..Default::default() }, "learning-rate"),
            (TrainingOptions { beta2: 1.0, ..Default::default() }, "beta2"),
            (TrainingOptions { weight_decay: -0.1, ..Default::default() }, "weight-decay"),
            (TrainingOptions { steps: 5, warmup_steps: Some(6), ..Default::default() }, "warmup-steps"),
        ];
        for (options, name) in cases {
            let message = options.check().unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
        }
    }

    #[test]
    fn options_are_written_in_kebab_case_and_unknown_ones_are_refused() {
        let json = serde_json::to_value(TrainingOptions::default()).unwrap();
        assert_eq!(json["tokens-per-batch"], 4096);
        assert_eq!(json["decay"], "linear");
        assert!(serde_json::from_str::<TrainingOptions>(r#"{"stepz": 3}"#).is_err());
    }
}
