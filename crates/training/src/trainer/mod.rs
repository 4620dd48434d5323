//! The training loop: batches to gradients to steps, with evaluations, checkpoints and an exact resume.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sporran_checkpoint::{Error, Result};
use sporran_transformers::fused::in_precision;

use crate::{
    checkpoint::{self, ExtraFiles, Position},
    gradients::Gradients,
    history::{FILE, History, HistoryLine},
    memory::KeptMemory,
    objective::{Objective, side_by_side},
    optimizer::{AdamW, AdamWConfig},
    options::TrainingOptions,
    schedule::Schedule,
    variables::Variables,
};

/// The error of an evaluation.
pub type EvaluationError = Box<dyn std::error::Error + Send + Sync>;

/// A training that can be run.
pub struct Training<'a, O> {
    /// The objective, a function of `variables`.
    pub objective: &'a O,
    /// The trained variables.
    pub variables: &'a Variables,
    /// How it is trained.
    pub options: &'a TrainingOptions,
    /// Scores the model on held-out data; higher is better. Without it the last weights count as the best.
    pub evaluate: Option<&'a dyn Fn() -> Result<f64, EvaluationError>>,
    /// Where checkpoints, the best weights and `history.jsonl` go.
    pub folder: &'a Path,
    /// Files to write next to the weights, so that a snapshot can be opened as a model.
    pub extra_files: &'a ExtraFiles,
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
    /// The mean loss of this step: per target token in nats, or as the objective defines it.
    pub loss: f64,
    /// The learning rate of this step.
    pub learning_rate: f64,
    /// The gradient's norm before clipping.
    pub gradient_norm: f64,
    /// Tokens without padding a second, since this run began.
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
/// it breaks or unwinds, a checkpoint is written and the training can be gone on with later.
///
/// # Errors
/// [`Error::Options`] where an option cannot be used or differs from those of the checkpoint; [`Error::Training`]
/// where an epoch has no batches or the loss is not finite; [`Error::Callback`] where the evaluation fails; and
/// whatever the objective, tensors and files give.
pub fn train<O: Objective>(
    training: &Training<'_, O>,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    Run::open(training)?.complete(progress)
}

/// The batches of an epoch, and the number of one of them.
type Placed<B> = (Arc<Vec<B>>, usize);

struct Run<'a, O: Objective> {
    training: &'a Training<'a, O>,
    optimizer: AdamW,
    schedule: Schedule,
    /// Steps in all.
    steps: u64,
    position: Position,
    /// The batches of the epoch that the position is in.
    batches: Arc<Vec<O::Batch>>,
    /// One pool of one thread for each batch that is worked on at the same time; none where there is one batch.
    pools: Vec<rayon::ThreadPool>,
    /// Memory for the gradients of batches.
    idle: VecDeque<Gradients>,
    history: History,
    saved_at: Option<u64>,
    /// When the last checkpoint was written, or the training begun.
    saved: Instant,
    /// It lasts as long as the run.
    _memory: KeptMemory,
}

impl<'a, O: Objective> Run<'a, O> {
    fn open(training: &'a Training<'a, O>) -> Result<Self> {
        let (options, memory) = (training.options, KeptMemory::new());
        options.check()?;
        training.objective.check(options)?;
        let config = AdamWConfig {
            beta1: options.beta1,
            beta2: options.beta2,
            epsilon: options.epsilon,
            weight_decay: options.weight_decay,
        };
        let mut optimizer = AdamW::new(training.variables.all(), config)?;
        optimizer.scale_rates(|variable| training.objective.rate(variable));
        let restored = checkpoint::restore(training.folder, &mut optimizer, training.extra_files)?;
        let saved_at = restored.as_ref().map(|position| position.step);
        let position = match restored {
            Some(position) => match options.differences(&position.options) {
                None => position,
                Some([expected, found]) => {
                    return Err(Error::OtherTraining { folder: training.folder.into(), expected, found });
                }
            },
            None => {
                Position { step: 0, epoch: 0, batch: 0, best: None, since_best: 0, options: options.clone() }
            }
        };
        let history = History::open(training.folder.join(FILE), position.step)?;
        // With one thread, a batch's small matrix products are not split and synchronised.
        let single = |_| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(1)
                .build()
                .map_err(|source| Error::Callback { what: "the thread pool", source: source.into() })
        };
        let threads = if options.parallel_batches == 1 { 0 } else { options.parallel_batches };
        let pools = (0..threads).map(single).collect::<Result<Vec<_>>>()?;
        let mut steps = options.steps;
        if options.epochs > 0 {
            steps = 0;
            for epoch in 0..options.epochs {
                let batches = open_epoch(training.objective, epoch)?.len();
                steps += batches.div_ceil(options.batches_per_step) as u64;
            }
        }
        let schedule = Schedule::new(options.learning_rate, options.warmup(steps)?, steps, options.decay);
        Ok(Self {
            training,
            optimizer,
            schedule,
            steps,
            batches: Arc::new(open_epoch(training.objective, position.epoch)?),
            position,
            pools,
            idle: VecDeque::new(),
            history,
            saved_at,
            saved: Instant::now(),
            _memory: memory,
        })
    }

    /// The batches of the next step.
    fn next_batches(&mut self) -> Result<Vec<Placed<O::Batch>>> {
        let options = self.training.options;
        let mut next = Vec::with_capacity(options.batches_per_step);
        while next.len() < options.batches_per_step {
            if self.position.batch == self.batches.len() {
                if options.epochs > 0 && !next.is_empty() {
                    break;
                }
                self.position.epoch += 1;
                self.position.batch = 0;
                self.batches = Arc::new(open_epoch(self.training.objective, self.position.epoch)?);
            }
            next.push((self.batches.clone(), self.position.batch));
            self.position.batch += 1;
        }
        Ok(next)
    }

    fn complete(mut self, progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Result<Outcome> {
        let options = self.training.options;
        let (began, first) = (Instant::now(), self.position.step);
        let mut tokens = 0usize;
        let mut finished = self.position.step >= self.steps || self.out_of_patience();
        let mut stopped = false;
        while !finished && !stopped {
            let (line, step_tokens) = self.step()?;
            tokens += step_tokens;
            let step = line.step;
            let is_last = step == self.steps;
            let ends_epoch = options.epochs > 0 && self.position.batch == self.batches.len();
            let score = match self.training.evaluate {
                Some(evaluate) if is_last || ends_epoch || is_due(step, options.evaluate_every) => {
                    Some(self.evaluate(evaluate)?)
                }
                _ => None,
            };
            self.history.write(&HistoryLine { score, ..line.clone() })?;
            finished = is_last || self.out_of_patience();
            let seconds = began.elapsed().as_secs_f64();
            let per_step = seconds / (step - first) as f64;
            let now = Progress {
                step,
                steps: self.steps,
                epoch: line.epoch,
                loss: line.loss,
                learning_rate: line.learning_rate,
                gradient_norm: line.gradient_norm,
                tokens_per_second: tokens as f64 / seconds,
                score,
                remaining: Duration::from_secs_f64(per_step * (self.steps - step) as f64),
            };
            let told = catch_unwind(AssertUnwindSafe(|| progress(&now)));
            stopped = !matches!(told, Ok(ControlFlow::Continue(())));
            if finished || stopped || is_checkpoint_due(step, options.checkpoint_every, self.saved.elapsed())
            {
                self.save()?;
            }
            if let Err(unwinding) = told {
                resume_unwind(unwinding);
            }
        }
        if self.training.evaluate.is_none() && finished {
            let step = self.position.step;
            checkpoint::save_best(self.training.folder, &self.optimizer, step, self.training.extra_files)?;
        }
        Ok(Outcome {
            step: self.position.step,
            best: self.position.best,
            best_folder: checkpoint::best_folder(self.training.folder)?,
            finished,
        })
    }

    /// One optimiser step; returns its line of history and the number of tokens that it saw.
    fn step(&mut self) -> Result<(HistoryLine, usize)> {
        let (options, objective) = (self.training.options, self.training.objective);
        let batches = self.next_batches()?;
        let epoch = self.position.epoch;
        let batches: Vec<&O::Batch> = batches.iter().map(|(all, at)| &all[*at]).collect();
        let weight: f64 = batches.iter().map(|batch| objective.weight(batch)).sum();
        let tokens = batches.iter().map(|batch| objective.tokens(batch)).sum();
        let step = self.position.step + 1;
        let seed = |at: u64| {
            options.seed ^ (step * options.batches_per_step as u64 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        let mut loss = 0.0;
        let mut sum: Option<Gradients> = None;
        let numbered: Vec<(&O::Batch, u64)> = batches.into_iter().zip((0..).map(seed)).collect();
        for portion in numbered.chunks(self.pools.len().max(1)) {
            let parts: Vec<(&O::Batch, u64, Gradients)> =
                portion.iter().map(|(batch, seed)| (*batch, *seed, self.zeros())).collect();
            let work = |(batch, seed, mut gradients): (&O::Batch, u64, Gradients)| {
                let learn = || objective.learn(batch, weight, seed, &mut gradients);
                let loss = in_precision(options.precision, learn)?;
                Ok((gradients, loss))
            };
            let parts: Vec<(Gradients, f64)> = if self.pools.is_empty() {
                parts.into_iter().map(work).collect::<Result<_>>()?
            } else {
                side_by_side(&self.pools, parts.into_iter(), work)?
            };
            // Summed in the order of the batches, independent of the threads.
            for (part, part_loss) in parts {
                loss += part_loss;
                match &mut sum {
                    None => sum = Some(part),
                    Some(sum) => {
                        sum.add_all(&part)?;
                        self.idle.push_back(part);
                    }
                }
            }
        }
        let mut gradients = sum.unwrap_or_default();
        let gradient_norm = gradients.clip_global_norm(options.clip_norm)?;
        if !loss.is_finite() || !gradient_norm.is_finite() {
            return Err(Error::Training {
                what: format!("step {step}"),
                expected: "a finite loss and gradient (a lower learning rate may help)".into(),
                found: format!("loss {loss}, gradient norm {gradient_norm}"),
            });
        }
        let learning_rate = self.schedule.rate(step);
        self.optimizer.step(&gradients, learning_rate)?;
        self.idle.push_back(gradients);
        self.position.step = step;
        Ok((HistoryLine { step, epoch, loss, learning_rate, gradient_norm, score: None }, tokens))
    }

    /// Gradients of zero, in memory of a step before where there is some.
    fn zeros(&mut self) -> Gradients {
        match self.idle.pop_front() {
            Some(mut gradients) => {
                gradients.clear();
                gradients
            }
            None => Gradients::zeros(self.optimizer.variables().map(|(_, var)| var)),
        }
    }

    fn evaluate(&mut self, evaluate: &dyn Fn() -> Result<f64, EvaluationError>) -> Result<f64> {
        let score = evaluate().map_err(|source| Error::Callback { what: "the evaluation", source })?;
        let step = self.position.step;
        if self.position.best.is_none_or(|(_, best)| score > best) {
            checkpoint::save_best(self.training.folder, &self.optimizer, step, self.training.extra_files)?;
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
                self.training.extra_files,
            )?;
            self.saved_at = Some(self.position.step);
            self.saved = Instant::now();
        }
        Ok(())
    }
}

/// The time between checkpoints if the options do not set it in steps. A killed run loses at most this time.
const BETWEEN_CHECKPOINTS: Duration = Duration::from_secs(300);

/// Whether a checkpoint is written after a step, some time after the last one. When it is written does not change the model.
fn is_checkpoint_due(step: u64, every: u64, since: Duration) -> bool {
    if every == 0 { since >= BETWEEN_CHECKPOINTS } else { is_due(step, every) }
}

fn is_due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}

/// The batches of an epoch, of which there must be one.
fn open_epoch<O: Objective>(objective: &O, epoch: u64) -> Result<Vec<O::Batch>> {
    let batches = objective.epoch(epoch)?;
    if batches.is_empty() {
        return Err(Error::Training {
            what: format!("epoch {epoch}"),
            expected: "at least one row".into(),
            found: "none".into(),
        });
    }
    Ok(batches)
}

#[cfg(test)]
mod tests;
