//! The loop of every training over a knowledge base: passes, scores on the valid part, the learning rate, checkpoints.

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

/// Where training goes on from, the folder of the best model so far, and that of the best when training is over.
const CHECKPOINT: &str = "checkpoint.safetensors";
const BEST: &str = "best";
const MODEL: &str = "model";
/// A score is better if it is greater by this share.
const BETTER: f64 = 1e-4;

/// How far a training has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Passes done.
    pub epoch: usize,
    /// Passes at most.
    pub epochs: usize,
    /// The mean loss of the last pass, without regularisation.
    pub loss: f64,
    /// The learning rate of the last pass.
    pub rate: f64,
    /// Seconds of the last pass.
    pub seconds: f64,
    /// The scores on the valid part, where they were taken after this pass.
    pub valid: Option<LinkScores>,
    /// The best pass and its mean reciprocal rank.
    pub best: Option<(usize, f64)>,
}

/// What came out of a training.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Passes done.
    pub epochs: usize,
    /// The best pass and its mean reciprocal rank on the valid part; none without one.
    pub best: Option<(usize, f64)>,
    /// The folder of the best model; of the last where there is no valid part. It is `model` where the training came to its end,
    /// and `best`, which may not be there yet, where it was stopped.
    pub model: PathBuf,
}

/// How long a training goes on, and how its rate falls.
#[derive(Clone, Copy)]
pub(crate) struct Schedule<'a> {
    pub(crate) epochs: usize,
    pub(crate) evaluate_every: usize,
    /// Evaluations without a better score before training ends.
    pub(crate) patience: usize,
    pub(crate) learning_rate: f64,
    /// What the rate is multiplied by after more than `decay_patience` evaluations without a better score.
    pub(crate) decay: f64,
    pub(crate) decay_patience: usize,
    /// Passes behind which it is multiplied by that as well.
    pub(crate) milestones: &'a [usize],
}

/// What a checkpoint knows beside values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Position {
    epoch: usize,
    step: u64,
    rate: f64,
    best: Option<(usize, f64)>,
    /// Evaluations since the best one, and since the rate was changed.
    worse: usize,
    waited: usize,
}

/// A pass, as a learner is asked for it.
pub(crate) struct Pass<'a> {
    pub(crate) epoch: usize,
    pub(crate) rate: f64,
    /// Steps made in all passes: each batch adds one before it steps.
    pub(crate) step: &'a mut u64,
}

/// What learns.
pub(crate) trait Learner {
    /// Learns from all that a pass has; gives the mean loss of its batches.
    fn learn(&mut self, pass: Pass<'_>) -> Result<f64>;
    /// The scores on the valid part; none without one.
    fn judge(&self) -> Result<Option<LinkScores>>;
    /// Writes the model's folder.
    fn save(&self, folder: &Path) -> Result<()>;
    /// The values that are learned, as a checkpoint has them.
    fn tensors(&self) -> Result<Vec<(String, Vec<usize>, Data<'_>)>>;
    /// Takes them from a checkpoint.
    fn restore(&mut self, from: &Mapped) -> Result<()>;
    /// What the optimiser remembers of them.
    fn states(&self) -> &[State];
    fn states_mut(&mut self) -> &mut [State];
}

/// What must be the same for a checkpoint to go on: options, without those that may be changed to train longer, seed and triples.
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

/// Trains, or goes on where a killed training of the same `identity` stopped. The result depends on neither. The model appears
/// whole at the end; until then the best one so far is kept apart.
///
/// # Errors
/// [`Error::Model`] for a checkpoint of another training; what learning and writing give.
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
        tracing::info!(epoch = position.epoch, "training goes on from {}", path.display());
    }
    let (best, model) = (folder.join(BEST), folder.join(MODEL));
    let mut is_stopped = false;
    while position.worse < schedule.patience && position.epoch < schedule.epochs {
        let started = Instant::now();
        let rate = position.rate;
        let loss = learner.learn(Pass { epoch: position.epoch, rate, step: &mut position.step })?;
        position.epoch += 1;
        let seconds = started.elapsed().as_secs_f64();
        let mut valid = None;
        let is_judged =
            position.epoch == schedule.epochs || position.epoch.is_multiple_of(schedule.evaluate_every);
        if is_judged {
            valid = learner.judge()?;
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
    // It is not there where a training that had come to its end found no better one.
    if best.is_dir() {
        if model.exists() {
            fs::remove_dir_all(&model).map_err(|source| sporran_kilt::Error::io(&model, "remove", source))?;
        }
        fs::rename(&best, &model).map_err(|source| sporran_kilt::Error::io(&model, "rename", source))?;
    }
    Ok(Outcome { epochs: position.epoch, best: position.best, model })
}

/// Takes a score into account.
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
