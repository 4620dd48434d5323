//! The loop of every training over a knowledge base: epochs, validation, learning rate, checkpoints.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Instant,
};

use serde::{Deserialize, Serialize};
use sporran_kilt::{
    StagedFolder,
    kb::{KnowledgeBase, Part, Triple},
};

use crate::{
    Error, Result,
    embedding::{LinkScores, checkpoint, file::Data, file::Mapped, optimizer::State},
};

/// The checkpoint, the folder of the best model so far, and the folder of the best model after training.
const CHECKPOINT: &str = "checkpoint.safetensors";
const BEST: &str = "best";
const MODEL: &str = "model";
/// A score must improve by this share to count as better.
const BETTER: f64 = 1e-4;

/// The progress of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Finished epochs.
    pub epoch: usize,
    /// The largest number of epochs.
    pub epochs: usize,
    /// The mean loss of the last epoch, without regularisation.
    pub loss: f64,
    /// The learning rate of the last epoch.
    pub rate: f64,
    /// Seconds of the last epoch.
    pub seconds: f64,
    /// The validation scores, if this epoch was evaluated.
    pub valid: Option<LinkScores>,
    /// The best epoch and its mean reciprocal rank.
    pub best: Option<(usize, f64)>,
}

/// The result of a training.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Finished epochs.
    pub epochs: usize,
    /// The best epoch and its mean reciprocal rank on the validation part; none without that part.
    pub best: Option<(usize, f64)>,
    /// The folder of the best model, or of the last without a validation part. It is `model` after a finished
    /// training. After a stopped training it is `best`, which may not exist yet.
    pub model: PathBuf,
}

/// The schedule of a training: when it stops, and how its learning rate decays.
#[derive(Clone, Copy)]
pub(crate) struct Schedule<'a> {
    pub(crate) epochs: usize,
    pub(crate) evaluate_every: usize,
    /// Evaluations without improvement before training ends.
    pub(crate) patience: usize,
    pub(crate) learning_rate: f64,
    /// The factor of the learning rate after more than `decay_patience` evaluations without improvement.
    pub(crate) decay: f64,
    pub(crate) decay_patience: usize,
    /// Epochs after which the learning rate is multiplied by `decay` too.
    pub(crate) milestones: &'a [usize],
}

/// The position of a training in its checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Position {
    epoch: usize,
    step: u64,
    rate: f64,
    best: Option<(usize, f64)>,
    /// Evaluations since the best one, and since the last decay.
    worse: usize,
    waited: usize,
}

/// The parameters of one epoch.
pub(crate) struct Pass<'a> {
    pub(crate) epoch: usize,
    pub(crate) rate: f64,
    /// The number of optimiser steps so far; each batch adds one before its step.
    pub(crate) step: &'a mut u64,
}

/// A model during training.
pub(crate) trait Learner {
    /// Trains for one epoch; returns the mean loss of its batches.
    fn learn(&mut self, pass: Pass<'_>) -> Result<f64>;
    /// The scores on the validation part; none without that part.
    fn evaluate(&self) -> Result<Option<LinkScores>>;
    /// Writes the model's folder.
    fn save(&self, folder: &Path) -> Result<()>;
    /// The trained values for a checkpoint.
    fn tensors(&self) -> Result<Vec<(String, Vec<usize>, Data<'_>)>>;
    /// Restores them from a checkpoint.
    fn restore(&mut self, from: &Mapped) -> Result<()>;
    /// The optimiser state of the values.
    fn states(&self) -> &[State];
    fn states_mut(&mut self) -> &mut [State];
}

/// The identity of a training: its triples, its seed and its options, except those that only extend the
/// training.
pub(crate) fn identity(options: &impl Serialize, seed: u64, kb: &KnowledgeBase) -> Result<String> {
    let options = serde_json::to_value(options).map_err(|error| Error::Argument(error.to_string()))?;
    let triples = kb.triples(Part::Train);
    let sum = triples.iter().fold(0u64, |sum, Triple { subject, relation, object }| {
        [subject.0, relation.0, object.0]
            .iter()
            .fold(sum, |sum, id| (sum ^ u64::from(*id)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23))
    });
    let counts = [kb.entity_count(), kb.relation_count(), triples.len()];
    Ok(serde_json::json!({ "options": options, "seed": seed, "counts": counts, "triples": sum }).to_string())
}

/// Trains, or resumes an interrupted training of the same `identity`. Resuming does not change the result.
/// The model folder appears at the end, atomically. Until then the best model is in a separate folder.
///
/// # Errors
/// [`Error::Model`] for a checkpoint of another training; training and write errors.
pub(crate) fn run(
    learner: &mut dyn Learner,
    schedule: Schedule<'_>,
    identity: &str,
    folder: &Path,
    observe: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    let mut position =
        Position { epoch: 0, step: 0, rate: schedule.learning_rate, best: None, worse: 0, waited: 0 };
    let path = folder.join(CHECKPOINT);
    if path.is_file() {
        let (mapped, found) = checkpoint::open(&path, identity, learner.states_mut())?;
        learner.restore(&mapped)?;
        position = found;
        tracing::info!(epoch = position.epoch, "resuming training from {}", path.display());
    }
    let (best, model) = (folder.join(BEST), folder.join(MODEL));
    let mut is_stopped = false;
    while position.worse < schedule.patience && position.epoch < schedule.epochs {
        let started = Instant::now();
        let rate = position.rate;
        let loss = learner.learn(Pass { epoch: position.epoch, rate, step: &mut position.step })?;
        position.epoch += 1;
        if !loss.is_finite() {
            let message = format!(
                "epoch {}: expected a finite loss, found {loss}; a lower learning rate or smaller initial values may help",
                position.epoch
            );
            return Err(Error::Argument(message));
        }
        let seconds = started.elapsed().as_secs_f64();
        let mut valid = None;
        let is_judged =
            position.epoch == schedule.epochs || position.epoch.is_multiple_of(schedule.evaluate_every);
        if is_judged {
            valid = learner.evaluate()?;
            if let Some(scores) = &valid {
                take(&mut position, scores.mrr.or_zero(), schedule);
            }
            if position.worse == 0 {
                let staged = StagedFolder::create(&best)?;
                learner.save(&staged.path())?;
                staged.commit()?;
            }
        }
        if schedule.milestones.contains(&position.epoch) {
            position.rate *= schedule.decay;
            position.waited = 0;
        }
        if is_judged {
            checkpoint::write(&path, identity, &position, learner.tensors()?, learner.states())?;
        }
        let Position { epoch, best, .. } = position;
        let progress = Progress { epoch, epochs: schedule.epochs, loss, rate, seconds, valid, best };
        if observe(&progress).is_break() {
            is_stopped = true;
            break;
        }
    }
    if is_stopped {
        return Ok(Outcome { epochs: position.epoch, best: position.best, model: best });
    }
    // It does not exist if a finished training was extended and found no better model.
    if best.is_dir() {
        if model.exists() {
            fs::remove_dir_all(&model).map_err(|source| sporran_kilt::Error::io(&model, "remove", source))?;
        }
        fs::rename(&best, &model).map_err(|source| sporran_kilt::Error::io(&model, "rename", source))?;
        sporran_kilt::folder::sync(model.parent().unwrap_or(&model))?;
    }
    Ok(Outcome { epochs: position.epoch, best: position.best, model })
}

/// Updates the position with a score.
fn take(position: &mut Position, score: f64, schedule: Schedule<'_>) {
    if position.best.is_none_or(|(_, best)| score > best * (1.0 + BETTER)) {
        position.best = Some((position.epoch, score));
        (position.worse, position.waited) = (0, 0);
        return;
    }
    position.worse += 1;
    position.waited += 1;
    if position.waited > schedule.decay_patience {
        position.rate *= schedule.decay;
        position.waited = 0;
    }
}
