//! The loop: passes over the questions, evaluation, learning rate, checkpoints.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Instant,
};

use serde::{Deserialize, Serialize};
use sporran_kilt::kb::{KnowledgeBase, Part, Triple, TripleIndex};

use super::{
    batch::Batch,
    checkpoint,
    evaluate::{LinkScores, ranks},
    model::EmbeddingModel,
    optimizer::{State, Step},
    options::{EmbeddingOptions, Storage},
    questions::Questions,
    step::{Place, Stepper},
    table::Rows,
};
use crate::{Error, Result};

/// Where training goes on from, and the folder of the best model.
pub(crate) const CHECKPOINT: &str = "checkpoint.safetensors";
pub(crate) const MODEL: &str = "model";
/// A score is better if it is greater by this share.
pub(crate) const BETTER: f64 = 1e-4;

/// A training.
#[derive(Clone, Copy, Debug)]
pub struct Training<'a> {
    /// What is learned from, and judged on.
    pub kb: &'a KnowledgeBase,
    /// The model and how it learns.
    pub options: &'a EmbeddingOptions,
    /// Decides everything that is drawn by chance.
    pub seed: u64,
    /// Where the checkpoint and the best model go. A training goes on from a checkpoint of the same options.
    pub folder: &'a Path,
    /// How the model's file keeps the entities' vectors.
    pub storage: Storage,
}

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
    /// The folder of the best model; of the last where there is no valid part.
    pub model: PathBuf,
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
    finished: bool,
}

/// What must be the same for a checkpoint to go on: options, seed, and the triples.
fn identity(training: &Training<'_>) -> Result<String> {
    let mut options = training.options.clone();
    // Training longer is going on.
    options.training.epochs = 0;
    options.training.patience = 0;
    let options = serde_json::to_value(&options).map_err(|error| Error::Argument(error.to_string()))?;
    let (counts, triples) = of_triples(training.kb);
    Ok(serde_json::json!({ "options": options, "seed": training.seed, "counts": counts, "triples": triples })
        .to_string())
}

/// What tells one knowledge base to learn from from another: counts, and a sum of the training triples.
pub(crate) fn of_triples(kb: &KnowledgeBase) -> ([usize; 3], u64) {
    let triples = kb.triples(Part::Train);
    let sum = triples.iter().fold(0u64, |sum, Triple { subject, relation, object }| {
        [subject.0, relation.0, object.0]
            .iter()
            .fold(sum, |sum, id| (sum ^ u64::from(*id)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23))
    });
    ([kb.entity_count(), kb.relation_count(), triples.len()], sum)
}

/// Trains a model, or goes on where a killed training stopped. The result depends on neither.
///
/// # Errors
/// [`Error::Options`]; [`Error::Argument`] without training triples; [`Error::Model`] for a checkpoint of another
/// training; what writing gives.
pub fn train(
    training: &Training<'_>,
    observe: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    let Training { kb, options, seed, folder, storage } = *training;
    let train = options.training.clone();
    let triples = kb.triples(Part::Train);
    if triples.is_empty() {
        return Err(Error::Argument("expected training triples, found none".into()));
    }
    if u32::try_from(2 * triples.len()).is_err() {
        return Err(Error::Argument(format!(
            "expected at most 2^31 training triples, found {}",
            triples.len()
        )));
    }
    let mut model = EmbeddingModel::new(kb, options, seed)?;
    let shape = model.shape.clone();
    let questions = Questions::new(triples, train.regime, shape.directions);
    let mut sizes = vec![shape.entities * shape.width()];
    sizes.extend(
        shape.tensors().iter().map(|(_, [rows, width], trained)| rows * width * usize::from(*trained)),
    );
    let mut states: Vec<State> = sizes.into_iter().map(|size| State::new(train.optimizer, size)).collect();
    let mut position = Position {
        epoch: 0,
        step: 0,
        rate: train.learning_rate,
        best: None,
        worse: 0,
        waited: 0,
        finished: false,
    };
    let identity = identity(training)?;
    let path = folder.join(CHECKPOINT);
    if path.is_file() {
        position = read(&path, &identity, &mut model, &mut states)?;
        tracing::info!(epoch = position.epoch, "training goes on from {}", path.display());
    }
    let valid = kb.triples(Part::Valid);
    let known = if valid.is_empty() { TripleIndex::default() } else { kb.index(&Part::ALL) };
    let folder_of_model = folder.join(MODEL);
    let mut stepper = Stepper::new(&shape, options);
    while !position.finished && position.epoch < train.epochs {
        let started = Instant::now();
        let epoch = position.epoch;
        let order = questions.order(seed, epoch);
        let (mut loss, mut batches) = (0.0, 0);
        for (batch, which) in order.chunks(train.batch_size).enumerate() {
            let rows = which.iter().map(|at| questions.at(*at as usize));
            let asked = Batch::new(rows, &train);
            position.step += 1;
            let step = Step::new(train.optimizer, position.rate, position.step);
            let place = Place { seed, epoch, batch };
            loss += stepper.run(&mut model.parameters, &asked, place, step, &mut states)?;
            batches += 1;
        }
        position.epoch += 1;
        let mut progress = Progress {
            epoch: position.epoch,
            epochs: train.epochs,
            loss: loss / f64::from(batches),
            rate: position.rate,
            seconds: started.elapsed().as_secs_f64(),
            valid: None,
            best: position.best,
        };
        let last = position.epoch == train.epochs;
        if last || position.epoch.is_multiple_of(train.evaluate_every) {
            if valid.is_empty() {
                model.save(&folder_of_model, storage)?;
            } else {
                let found = ranks(&model, valid, &known)?;
                let scores = LinkScores::of(found.iter().flat_map(|ranks| [ranks.object, ranks.subject]));
                judge(&mut position, scores.mrr, &train);
                if position.worse == 0 {
                    model.save(&folder_of_model, storage)?;
                }
                (progress.valid, progress.best) = (Some(scores), position.best);
            }
            checkpoint::write(&path, &identity, &position, model.tensors(false)?, &states)?;
        }
        if observe(&progress).is_break() {
            break;
        }
    }
    Ok(Outcome { epochs: position.epoch, best: position.best, model: folder_of_model })
}

/// Takes a score into account.
fn judge(position: &mut Position, score: f64, options: &super::options::TrainingOptions) {
    if position.best.is_none_or(|(_, best)| score > best * (1.0 + BETTER)) {
        position.best = Some((position.epoch, score));
        (position.worse, position.waited) = (0, 0);
        return;
    }
    position.worse += 1;
    position.waited += 1;
    if position.waited > options.decay_patience {
        position.rate *= options.decay;
        position.waited = 0;
    }
    position.finished = position.worse >= options.patience;
}

fn read(path: &Path, identity: &str, model: &mut EmbeddingModel, states: &mut [State]) -> Result<Position> {
    let (mapped, mut position) = checkpoint::open::<Position>(path, identity, states)?;
    // With more patience than before there may be more to do.
    position.finished = position.worse >= model.options.training.patience;
    let (count, width) = (model.shape.entities, model.shape.width());
    match model.parameters.entities.rows_mut() {
        Rows::F32(values) => *values = mapped.values("entities", [count, width])?,
        Rows::F16(values) => *values = mapped.halves("entities", [count, width])?,
        Rows::Mapped { .. } => return Err(Error::Storage { expected: "entities in memory" }),
    }
    for tensor in &mut model.parameters.tensors {
        tensor.values = mapped.values(tensor.name, tensor.shape)?;
    }
    Ok(position)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sporran_kilt::kb::{EntityId, RelationId};

    use super::*;
    use crate::embedding::{TripleScorer, evaluate};

    /// Twelve entities on a circle: `next` goes on by one, `skip` by two, `back` returns.
    fn circle() -> KnowledgeBase {
        let mut kb = KnowledgeBase::default();
        for at in 0..12 {
            kb.add_entity(&format!("Q{at}")).unwrap();
        }
        for name in ["next", "skip", "back"] {
            kb.add_relation(name).unwrap();
        }
        for at in 0..12u32 {
            for (relation, by) in [(0, 1), (1, 2), (2, 11)] {
                // Every fifth triple is kept for judging.
                let part = if (at * 3 + relation) % 5 == 4 { Part::Valid } else { Part::Train };
                kb.add(part, Triple::new(at, relation, (at + by) % 12)).unwrap();
            }
        }
        kb
    }

    fn options(json: serde_json::Value) -> EmbeddingOptions {
        serde_json::from_value(json).unwrap()
    }

    fn run(options: &EmbeddingOptions, folder: &Path, stop: usize) -> Outcome {
        let kb = circle();
        let training = Training { kb: &kb, options, seed: 5, folder, storage: Storage::F32 };
        let mut observe = |progress: &Progress| {
            if progress.epoch == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        train(&training, &mut observe).unwrap()
    }

    fn models() -> Vec<EmbeddingOptions> {
        let base = |model: &str, more: serde_json::Value| {
            let mut json = json!({ "model": model, "dim": 16, "initial": "normal", "initial-scale": 0.3, "entity-dropout": 0.1,
                "training": { "epochs": 12, "batch-size": 10, "evaluate-every": 4, "learning-rate": 0.1 } });
            for (key, value) in more.as_object().unwrap() {
                json[key] = value.clone();
            }
            options(json)
        };
        let sampled = json!({ "epochs": 12, "batch-size": 10, "evaluate-every": 4, "regime": "negative-sampling", "loss": "self-adversarial",
            "margin": 3.0, "object-negatives": 5, "subject-negatives": 5, "optimizer": "adam", "learning-rate": 0.02 });
        vec![
            base("complex", json!({ "candidate-dropout": 0.1 })),
            base("tucker", json!({ "relation-dim": 4 })),
            base("conve", json!({ "height": 4, "filters": 2, "map-dropout": 0.1 })),
            base("rotate", json!({ "training": sampled })),
            base("transe", json!({ "training": sampled, "storage": "f16" })),
        ]
    }

    #[test]
    fn a_killed_training_ends_with_the_same_bytes() {
        for options in models() {
            let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let expected = run(&options, whole.path(), usize::MAX);
            // Stopped behind pass 6, it goes on from the checkpoint behind pass 4.
            run(&options, broken.path(), 6);
            let found = run(&options, broken.path(), usize::MAX);
            assert_eq!((found.epochs, found.best), (expected.epochs, expected.best), "{options:?}");
            for file in ["checkpoint.safetensors", "model/embedding.safetensors"] {
                let read = |folder: &Path| std::fs::read(folder.join(file)).unwrap();
                assert!(read(whole.path()) == read(broken.path()), "{file} {options:?}");
            }
        }
    }

    #[test]
    fn one_thread_and_three_learn_the_same() {
        for options in models() {
            let bytes = |threads: usize| {
                let folder = tempfile::tempdir().unwrap();
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| run(&options, folder.path(), usize::MAX));
                std::fs::read(folder.path().join("checkpoint.safetensors")).unwrap()
            };
            assert!(bytes(1) == bytes(3), "{options:?}");
        }
    }

    #[test]
    fn a_checkpoint_of_other_options_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = models().remove(0);
        run(&options, folder.path(), usize::MAX);
        options.training.epochs = 13;
        assert_eq!(run(&options, folder.path(), usize::MAX).epochs, 13);
        options.training.learning_rate = 0.2;
        let kb = circle();
        let training =
            Training { kb: &kb, options: &options, seed: 5, folder: folder.path(), storage: Storage::F32 };
        let error = train(&training, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(error.to_string().contains("expected a checkpoint of this training"), "{error}");
    }

    #[test]
    fn answers_of_the_test_part_are_no_mistakes_on_the_valid_part() {
        let mut kb = KnowledgeBase::default();
        for at in 0..6 {
            kb.add_entity(&format!("Q{at}")).unwrap();
        }
        kb.add_relation("r").unwrap();
        kb.add(Part::Train, Triple::new(2, 0, 3)).unwrap();
        kb.add(Part::Valid, Triple::new(0, 0, 1)).unwrap();
        // Whatever else could be answered in place of 1, or of 0, holds.
        for other in (0..6).filter(|other| *other != 1) {
            kb.add(Part::Test, Triple::new(0, 0, other)).unwrap();
        }
        for other in 1..6 {
            kb.add(Part::Test, Triple::new(other, 0, 1)).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let options = options(json!({ "model": "distmult", "dim": 4, "training": { "epochs": 1 } }));
        let training =
            Training { kb: &kb, options: &options, seed: 5, folder: folder.path(), storage: Storage::F32 };
        let outcome = train(&training, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(outcome.best, Some((1, 1.0)));
    }

    #[test]
    fn a_circle_is_learned_and_opened_again() {
        let kb = circle();
        let options = options(
            json!({ "model": "complex", "dim": 32, "initial": "normal", "initial-scale": 0.1,
            "training": { "epochs": 80, "batch-size": 16, "patience": 80, "regularizer": { "entity": 0.02, "relation": 0.02 } } }),
        );
        let folder = tempfile::tempdir().unwrap();
        let outcome = run(&options, folder.path(), usize::MAX);
        assert!(outcome.best.unwrap().1 > 0.6, "{outcome:?}");
        let model = EmbeddingModel::open(&outcome.model).unwrap();
        model.check(&kb).unwrap();
        let known = kb.index(&Part::ALL);
        let report = evaluate(&model, &kb, kb.triples(Part::Train), &known).unwrap();
        assert!(report.all.mrr > 0.95, "{report:?}");
        assert_eq!(report.relations.len(), 3);
        // In 16 bits the model ranks alike.
        let half = tempfile::tempdir().unwrap();
        let training =
            Training { kb: &kb, options: &options, seed: 5, folder: half.path(), storage: Storage::F16 };
        let outcome = train(&training, &mut |_| ControlFlow::Continue(())).unwrap();
        let again = EmbeddingModel::open(&outcome.model).unwrap();
        let halved = evaluate(&again, &kb, kb.triples(Part::Train), &known).unwrap();
        assert!((halved.all.mrr - report.all.mrr).abs() < 0.02, "{halved:?}");
        let mut scores = vec![0.0; 12];
        assert!(model.score_objects(&[(EntityId(12), RelationId(1))], &mut scores).is_err());
        let other = KnowledgeBase::default();
        assert!(
            model
                .check(&other)
                .unwrap_err()
                .to_string()
                .contains("entity 0 is `Q0` there and `nothing` here")
        );
    }
}
