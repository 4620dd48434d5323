//! The training loop: batches to gradients to steps, with evaluations, checkpoints and an exact resume.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::seq2seq::Trainable;
use crate::training::checkpoint::{self, Companions, Position};
use crate::training::data::{Row, batches_of};
use crate::training::history::{FILE, History, HistoryLine};
use crate::training::learner::{Learner, side_by_side};
use crate::training::optimizer::{AdamW, AdamWConfig, Gradients, clip_global_norm};
use crate::training::options::TrainingOptions;
use crate::training::schedule::Schedule;
use crate::training::variables::Variables;
use rayon::prelude::*;

/// What an evaluation may fail with.
pub type EvaluationError = Box<dyn std::error::Error + Send + Sync>;

/// A training that can be run.
pub struct Training<'a> {
    /// The model, built from `variables`.
    pub model: &'a dyn Trainable,
    /// What is trained.
    pub variables: &'a Variables,
    /// How it is trained.
    pub options: &'a TrainingOptions,
    /// The rows of an epoch, counted from 0. They may differ from epoch to epoch (fresh distractors, say), but must
    /// be a function of the epoch's number, or a resumed training goes another way.
    pub rows: &'a (dyn Fn(u64) -> Result<Arc<Vec<Row>>> + Sync),
    /// Scores the model on held-out data; higher is better. Without it the last weights count as the best.
    pub evaluate: Option<&'a dyn Fn() -> Result<f64, EvaluationError>>,
    /// Where checkpoints, the best weights and `history.jsonl` go.
    pub folder: &'a Path,
    /// Files to put beside the weights, so that a snapshot can be opened as a model.
    pub companions: &'a Companions,
}

/// How far a training is, after a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Steps made.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// The mean loss of a target token in this step, in nats.
    pub loss: f64,
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// The gradient's norm before clipping.
    pub gradient_norm: f64,
    /// Source and target tokens without padding a second, since this run began.
    pub tokens_per_second: f64,
    /// The score of the evaluation after this step, if there was one.
    pub score: Option<f64>,
    /// The time that the remaining steps will take at the present speed.
    pub remaining: Duration,
}

/// How a training ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Steps made.
    pub step: u64,
    /// The step and score of the best evaluation, if there was one.
    pub best: Option<(u64, f64)>,
    /// The folder of the best weights.
    pub best_folder: Option<PathBuf>,
    /// Whether all steps were made or patience ran out; false where the progress callback stopped it.
    pub finished: bool,
}

/// Runs a training to its end, from its newest checkpoint if it has one. `progress` is called after every step; when
/// it breaks, a checkpoint is written and the training can be gone on with later.
///
/// # Errors
/// [`Error::Options`] where an option cannot be used or differs from those of the checkpoint; [`Error::Training`]
/// where an epoch has no rows or the loss is not finite; [`Error::Callback`] where the evaluation fails; and whatever
/// tensors and files give.
pub fn train(
    training: &Training<'_>,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    Run::open(training)?.complete(progress)
}

struct Run<'a> {
    training: &'a Training<'a>,
    optimizer: AdamW,
    schedule: Schedule,
    position: Position,
    rows: Arc<Vec<Row>>,
    batches: Vec<Vec<usize>>,
    /// One pool of one thread for each batch that is worked on at the same time; none where there is one batch.
    pools: Vec<rayon::ThreadPool>,
    history: History,
    saved_at: Option<u64>,
}

impl<'a> Run<'a> {
    fn open(training: &'a Training<'a>) -> Result<Self> {
        let options = training.options;
        options.check()?;
        let config = AdamWConfig {
            beta1: options.beta1,
            beta2: options.beta2,
            epsilon: options.epsilon,
            weight_decay: options.weight_decay,
        };
        let mut optimizer = AdamW::new(training.variables.all(), config)?;
        let restored = checkpoint::restore(training.folder, &mut optimizer)?;
        let saved_at = restored.as_ref().map(|position| position.step);
        let position = match restored {
            Some(position) if position.options.same_result(options) => position,
            Some(position) => {
                return Err(Error::Training {
                    what: format!("checkpoint in {}", training.folder.display()),
                    expected: format!("one of the options {options:?}"),
                    found: format!("one of {:?}", position.options),
                });
            }
            None => {
                Position { step: 0, epoch: 0, batch: 0, best: None, since_best: 0, options: options.clone() }
            }
        };
        let history = History::open(training.folder.join(FILE), position.step)?;
        // A thread of its own keeps a batch's small matrix products from being split and waited for.
        let single = |_| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(1)
                .build()
                .map_err(|source| Error::Callback { what: "the thread pool", source: source.into() })
        };
        let threads = if options.parallel_batches == 1 { 0 } else { options.parallel_batches };
        let pools = (0..threads).map(single).collect::<Result<Vec<_>>>()?;
        let schedule =
            Schedule::new(options.learning_rate, options.warmup_steps, options.steps, options.decay);
        let mut run = Self {
            training,
            optimizer,
            schedule,
            position,
            rows: Arc::default(),
            batches: Vec::new(),
            pools,
            history,
            saved_at,
        };
        run.open_epoch()?;
        Ok(run)
    }

    /// Takes the rows and the order of the epoch that the position is in.
    fn open_epoch(&mut self) -> Result<()> {
        let options = self.training.options;
        self.rows = (self.training.rows)(self.position.epoch)?;
        self.batches = batches_of(&self.rows, options.tokens_per_batch, options.seed, self.position.epoch);
        if self.rows.is_empty() {
            return Err(Error::Training {
                what: format!("epoch {}", self.position.epoch),
                expected: "at least one row".into(),
                found: "none".into(),
            });
        }
        Ok(())
    }

    /// The rows of the next batch, from the next epoch where this one is used up.
    fn next_batch(&mut self) -> Result<Vec<Row>> {
        if self.position.batch == self.batches.len() {
            self.position.epoch += 1;
            self.position.batch = 0;
            self.open_epoch()?;
        }
        let batch = &self.batches[self.position.batch];
        self.position.batch += 1;
        Ok(batch.iter().map(|&i| self.rows[i].clone()).collect())
    }

    fn complete(mut self, progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Result<Outcome> {
        let options = self.training.options;
        let (began, first) = (Instant::now(), self.position.step);
        let mut tokens = 0usize;
        let mut finished = self.position.step >= options.steps || self.out_of_patience();
        let mut stopped = false;
        while !finished && !stopped {
            let (line, step_tokens) = self.step()?;
            tokens += step_tokens;
            let step = line.step;
            let is_last = step == options.steps;
            let score = match self.training.evaluate {
                Some(evaluate) if is_last || is_due(step, options.evaluate_every) => {
                    Some(self.evaluate(evaluate)?)
                }
                _ => None,
            };
            self.history.write(&HistoryLine { score, ..line.clone() })?;
            finished = is_last || self.out_of_patience();
            let seconds = began.elapsed().as_secs_f64();
            let per_step = seconds / (step - first) as f64;
            stopped = progress(&Progress {
                step,
                steps: options.steps,
                epoch: line.epoch,
                loss: line.loss,
                learning_rate: line.learning_rate,
                gradient_norm: line.gradient_norm,
                tokens_per_second: tokens as f64 / seconds,
                score,
                remaining: Duration::from_secs_f64(per_step * (options.steps - step) as f64),
            })
            .is_break();
            if finished || stopped || is_due(step, options.checkpoint_every) {
                self.save()?;
            }
        }
        if self.training.evaluate.is_none() && finished {
            let step = self.position.step;
            checkpoint::save_best(self.training.folder, &self.optimizer, step, self.training.companions)?;
        }
        Ok(Outcome {
            step: self.position.step,
            best: self.position.best,
            best_folder: checkpoint::best_folder(self.training.folder)?,
            finished,
        })
    }

    /// One optimiser step; gives its line of history and the number of tokens that it saw.
    fn step(&mut self) -> Result<(HistoryLine, usize)> {
        let options = self.training.options;
        let epoch = self.position.epoch;
        let mut batches = Vec::with_capacity(options.batches_per_step);
        for _ in 0..options.batches_per_step {
            batches.push(self.next_batch()?);
        }
        let targets: usize = batches.iter().flatten().map(|row| row.target.len()).sum();
        let tokens = targets + batches.iter().flatten().map(|row| row.source.len()).sum::<usize>();
        let step = self.position.step + 1;
        let seeds: Vec<u64> = (0..batches.len() as u64)
            .map(|i| {
                options.seed
                    ^ (step * options.batches_per_step as u64 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            })
            .collect();
        let learner = Learner {
            model: self.training.model,
            variables: self.optimizer.variables().map(|(_, var)| var).collect(),
            label_smoothing: options.label_smoothing,
        };
        let work = |(batch, &seed): (&Vec<Row>, &u64)| learner.gradients(batch, targets, seed);
        let parts: Vec<(Gradients, f64)> = if self.pools.is_empty() {
            batches.iter().zip(&seeds).map(work).collect::<Result<_>>()?
        } else {
            let mut parts = Vec::with_capacity(batches.len());
            for (batches, seeds) in batches.chunks(self.pools.len()).zip(seeds.chunks(self.pools.len())) {
                parts.extend(side_by_side(&self.pools, batches.iter().zip(seeds), work)?);
            }
            parts
        };
        // Summed in the order of the batches, whichever thread was first.
        let mut parts = parts.into_iter();
        let (mut gradients, mut loss) = parts.next().unwrap_or_default();
        for (more, part) in parts {
            loss += part;
            gradients.par_iter_mut().zip(&more).for_each(|(sum, part)| {
                sum.iter_mut().zip(part).for_each(|(a, b)| *a += b);
            });
        }
        let gradient_norm = clip_global_norm(&mut gradients, options.clip_norm);
        if !loss.is_finite() || !gradient_norm.is_finite() {
            return Err(Error::Training {
                what: format!("step {step}"),
                expected: "a finite loss and gradient (a lower learning rate may help)".into(),
                found: format!("loss {loss}, gradient norm {gradient_norm}"),
            });
        }
        let learning_rate = self.schedule.rate(step);
        self.optimizer.step(&gradients, learning_rate)?;
        self.position.step = step;
        Ok((HistoryLine { step, epoch, loss, learning_rate, gradient_norm, score: None }, tokens))
    }

    fn evaluate(&mut self, evaluate: &dyn Fn() -> Result<f64, EvaluationError>) -> Result<f64> {
        let score = evaluate().map_err(|source| Error::Callback { what: "the evaluation", source })?;
        let step = self.position.step;
        if self.position.best.is_none_or(|(_, best)| score > best) {
            checkpoint::save_best(self.training.folder, &self.optimizer, step, self.training.companions)?;
            self.position.best = Some((step, score));
            self.position.since_best = 0;
        } else {
            self.position.since_best += 1;
        }
        Ok(score)
    }

    fn out_of_patience(&self) -> bool {
        let patience = self.training.options.patience;
        patience > 0 && self.position.since_best >= patience
    }

    fn save(&mut self) -> Result<()> {
        if self.saved_at != Some(self.position.step) {
            checkpoint::save(
                self.training.folder,
                &self.optimizer,
                &self.position,
                self.training.companions,
            )?;
            self.saved_at = Some(self.position.step);
        }
        Ok(())
    }
}

fn is_due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::io::Write;

    use candle_core::Var;

    use super::*;
    use crate::training::learner::tests::{build, examples};

    fn options(steps: u64) -> TrainingOptions {
        TrainingOptions {
            seed: 3,
            steps,
            tokens_per_batch: 24,
            batches_per_step: 2,
            learning_rate: 5e-3,
            warmup_steps: 2,
            ..TrainingOptions::default()
        }
    }

    fn flat(variables: &Variables) -> Vec<(String, Vec<f32>)> {
        let values = |var: Var| var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        variables.all().into_iter().map(|(name, var)| (name, values(var))).collect()
    }

    /// Trains a fresh model in `folder`; breaks after step `stop`. Gives the weights and what happened.
    fn run(
        folder: &Path,
        options: &TrainingOptions,
        dropout: f64,
        stop: u64,
    ) -> (Vec<(String, Vec<f32>)>, Outcome) {
        let (model, variables) = build(dropout);
        let rows = examples(20);
        let training = Training {
            model: &model,
            variables: &variables,
            options,
            rows: &|_| Ok(rows.clone()),
            evaluate: None,
            folder,
            companions: &[],
        };
        let mut stopping = |progress: &Progress| {
            if progress.step == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let outcome = train(&training, &mut stopping).unwrap();
        (flat(&variables), outcome)
    }

    #[test]
    fn eight_examples_are_learned_by_heart() {
        let folder = tempfile::tempdir().unwrap();
        let (model, variables) = build(0.0);
        let rows = examples(8);
        let options = TrainingOptions { tokens_per_batch: 200, batches_per_step: 1, ..options(300) };
        let training = Training {
            model: &model,
            variables: &variables,
            options: &options,
            rows: &|_| Ok(rows.clone()),
            evaluate: None,
            folder: folder.path(),
            companions: &[],
        };
        let mut losses = Vec::new();
        train(&training, &mut |progress| {
            losses.push(progress.loss);
            ControlFlow::Continue(())
        })
        .unwrap();
        // A fresh model is about as good as an even guess over 40 tokens: ln 40 = 3.7.
        assert!(losses[0] > 2.5 && losses[299] < 0.02, "{} {}", losses[0], losses[299]);
    }

    #[test]
    fn a_stopped_training_goes_on_to_the_same_weights_and_history() {
        let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = options(12);
        // With dropout and several epochs, so that masks and orders must be found again too.
        let (expected, _) = run(whole.path(), &options, 0.2, 0);
        let (_, first) = run(parts.path(), &options, 0.2, 5);
        assert!(!first.finished && first.step == 5);
        let (got, second) = run(parts.path(), &options, 0.2, 0);
        assert!(second.finished && second.step == 12);
        assert_eq!(got, expected);
        let history = |folder: &Path| fs::read_to_string(folder.join(FILE)).unwrap();
        assert_eq!(history(parts.path()), history(whole.path()));
        assert_eq!(history(whole.path()).lines().count(), 12);
    }

    #[test]
    fn a_kill_between_checkpoints_loses_nothing_but_time() {
        let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = TrainingOptions { checkpoint_every: 4, evaluate_every: 6, ..options(12) };
        let (expected, _) = run(whole.path(), &options, 0.0, 0);
        // An evaluation that fails at step 6 leaves the folder as a kill does: checkpoint 4, history to step 5.
        let (model, variables) = build(0.0);
        let rows = examples(20);
        let training = Training {
            model: &model,
            variables: &variables,
            options: &options,
            rows: &|_| Ok(rows.clone()),
            evaluate: Some(&|| Err("killed".into())),
            folder: killed.path(),
            companions: &[],
        };
        let error = train(&training, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(error, Error::Callback { what: "the evaluation", .. }));
        let mut history = fs::OpenOptions::new().append(true).open(killed.path().join(FILE)).unwrap();
        history.write_all(b"{\"step\": 6, \"epo").unwrap();
        let (got, outcome) = run(killed.path(), &options, 0.0, 0);
        assert_eq!((got, outcome.step), (expected, 12));
    }

    #[test]
    fn the_number_of_threads_does_not_change_the_weights() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = options(4);
        let parallel = TrainingOptions { parallel_batches: 2, ..options.clone() };
        assert_eq!(run(one.path(), &options, 0.1, 0).0, run(two.path(), &parallel, 0.1, 0).0);
    }

    #[test]
    fn the_best_weights_are_kept_and_patience_ends_the_training() {
        let folder = tempfile::tempdir().unwrap();
        let (model, variables) = build(0.0);
        let rows = examples(20);
        let options = TrainingOptions { evaluate_every: 2, patience: 3, ..options(40) };
        let scores = Cell::new([0.1, 0.5, 0.4, 0.5, 0.2].into_iter());
        let training = Training {
            model: &model,
            variables: &variables,
            options: &options,
            rows: &|_| Ok(rows.clone()),
            evaluate: Some(&|| {
                let mut left = scores.take();
                let next = left.next().ok_or("more evaluations than patience allows")?;
                scores.set(left);
                Ok(next)
            }),
            folder: folder.path(),
            companions: &[("config.json".into(), b"{}".to_vec())],
        };
        let outcome = train(&training, &mut |_| ControlFlow::Continue(())).unwrap();
        // The second evaluation, at step 4, is the best; an equal one later is not better; three more end it.
        assert_eq!((outcome.best, outcome.step, outcome.finished), (Some((4, 0.5)), 10, true));
        let best = outcome.best_folder.unwrap();
        assert!(best.ends_with("best-00000004") && best.join("config.json").exists());
    }

    #[test]
    fn a_checkpoint_of_other_options_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &options(3), 0.0, 0);
        let (model, variables) = build(0.0);
        let other = TrainingOptions { seed: 4, ..options(3) };
        let rows = examples(20);
        let training = Training {
            model: &model,
            variables: &variables,
            options: &other,
            rows: &|_| Ok(rows.clone()),
            evaluate: None,
            folder: folder.path(),
            companions: &[],
        };
        let message = train(&training, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
        assert!(message.contains("seed: 4") && message.contains("seed: 3"), "{message}");
    }
}
