//! Training of embeddings.

use std::{ops::ControlFlow, path::Path};

use sporran_kilt::kb::{KnowledgeBase, Part, Triple, TripleIndex};

use super::{
    batch::Batch,
    evaluate::{LinkScores, ranks},
    file::{Data, Mapped},
    model::EmbeddingModel,
    optimizer::{State, Step},
    options::{EmbeddingOptions, Storage},
    questions::Questions,
    step::{Place, Stepper},
    table::Rows,
    training_options::TrainingOptions,
};
use crate::{
    Error, Result,
    learning::{self, Learner, Outcome, Pass, Progress, Schedule},
};

/// The prefix of averaged values in a checkpoint.
const AVERAGE: &str = "average.";

/// The inputs of a training.
#[derive(Clone, Copy, Debug)]
pub struct Training<'a> {
    /// The knowledge base with the training and validation triples.
    pub kb: &'a KnowledgeBase,
    /// The options of the model and of its training.
    pub options: &'a EmbeddingOptions,
    /// The seed of all random choices.
    pub seed: u64,
    /// The folder of the checkpoint and the best model. A checkpoint with the same options is resumed.
    pub folder: &'a Path,
    /// The storage type of the entity vectors in the model's file.
    pub storage: Storage,
}

/// An embedding during training.
struct EmbeddingLearner<'a> {
    seed: u64,
    train: &'a TrainingOptions,
    storage: Storage,
    questions: Questions<'a>,
    valid: &'a [Triple],
    known: TripleIndex,
    model: EmbeddingModel,
    /// The moving average of the model's values, with `ema-decay`.
    average: Option<EmbeddingModel>,
    states: Vec<State>,
    stepper: Stepper<'a>,
}

impl EmbeddingLearner<'_> {
    /// The model to evaluate and write.
    fn outcome(&self) -> &EmbeddingModel {
        self.average.as_ref().unwrap_or(&self.model)
    }
}

/// Trains a model, or resumes an interrupted training. Resuming does not change the result.
///
/// # Errors
/// [`Error::Options`]; [`Error::Argument`] without training triples; [`Error::Model`] for a checkpoint of another
/// training; write errors.
pub fn train(
    training: &Training<'_>,
    observe: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    let Training { kb, options, seed, folder, storage } = *training;
    let train = &options.training;
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
    let model = EmbeddingModel::new(kb, options, seed)?;
    let shape = model.shape.clone();
    let mut sizes = vec![shape.entities * shape.width()];
    sizes.extend(
        shape.tensors().iter().map(|(_, [rows, width], trained)| rows * width * usize::from(*trained)),
    );
    let valid = kb.triples(Part::Valid);
    let mut learner = EmbeddingLearner {
        seed,
        train,
        storage,
        questions: Questions::new(triples, train, shape.directions),
        valid,
        known: if valid.is_empty() { TripleIndex::default() } else { kb.index(&Part::ALL) },
        average: train.ema_decay.is_some().then(|| model.clone()),
        model,
        states: sizes.into_iter().map(|size| State::new(train.optimizer, size)).collect(),
        stepper: Stepper::new(&shape, options),
    };
    let mut same = options.clone();
    (same.training.epochs, same.training.patience) = (0, 0);
    let identity = learning::identity(&same, seed, kb)?;
    let schedule = Schedule {
        epochs: train.epochs,
        evaluate_every: train.evaluate_every,
        patience: train.patience,
        learning_rate: train.learning_rate,
        decay: train.decay,
        decay_patience: train.decay_patience,
        milestones: &train.milestones,
    };
    learning::run(&mut learner, schedule, &identity, folder, observe)
}

impl Learner for EmbeddingLearner<'_> {
    fn learn(&mut self, Pass { epoch, rate, step }: Pass<'_>) -> Result<f64> {
        let Self { seed, train, .. } = *self;
        let order = self.questions.order(seed, epoch);
        let (mut loss, mut batches) = (0.0, 0);
        for (batch, which) in order.chunks(train.batch_size).enumerate() {
            let rows = which.iter().map(|at| self.questions.at(*at as usize));
            let asked = Batch::new(rows, train);
            *step += 1;
            let step = Step::new(train.optimizer, rate, *step);
            let place = Place { seed, epoch, batch };
            loss += self.stepper.run(&mut self.model.parameters, &asked, place, step, &mut self.states)?;
            batches += 1;
        }
        if let (Some(decay), Some(average)) = (train.ema_decay, &mut self.average) {
            // The plain mean of all epochs, until the moving average covers fewer of them.
            let keep = decay.min(epoch as f64 / (epoch + 1) as f64);
            average.parameters.approach(&self.model.parameters, keep as f32)?;
        }
        Ok(loss / f64::from(batches))
    }

    fn evaluate(&self) -> Result<Option<LinkScores>> {
        if self.valid.is_empty() {
            return Ok(None);
        }
        let found = ranks(self.outcome(), self.valid, &self.known)?;
        Ok(Some(LinkScores::of(found.iter().flat_map(|ranks| [ranks.object, ranks.subject]))))
    }

    fn save(&self, folder: &Path) -> Result<()> {
        self.outcome().save(folder, self.storage)
    }

    fn tensors(&self) -> Result<Vec<(String, Vec<usize>, Data<'_>)>> {
        let mut all = self.model.tensors(false)?;
        if let Some(average) = &self.average {
            let tensors = average.tensors(false)?.into_iter();
            all.extend(tensors.map(|(name, shape, data)| (format!("{AVERAGE}{name}"), shape, data)));
        }
        Ok(all)
    }

    fn restore(&mut self, from: &Mapped) -> Result<()> {
        restore(&mut self.model, from, "")?;
        self.average.as_mut().map_or(Ok(()), |average| restore(average, from, AVERAGE))
    }

    fn states(&self) -> &[State] {
        &self.states
    }

    fn states_mut(&mut self) -> &mut [State] {
        &mut self.states
    }
}

/// Restores a model's values from a checkpoint. `prefix` precedes their names.
fn restore(model: &mut EmbeddingModel, from: &Mapped, prefix: &str) -> Result<()> {
    let (count, width) = (model.shape.entities, model.shape.width());
    let entities = format!("{prefix}entities");
    match model.parameters.entities.rows_mut() {
        Rows::F32(values) => *values = from.values(&entities, [count, width])?,
        Rows::F16(values) => *values = from.halves(&entities, [count, width])?,
        Rows::Mapped { .. } => return Err(Error::Storage { expected: "entities in memory" }),
    }
    for tensor in &mut model.parameters.tensors {
        tensor.values = from.values(&format!("{prefix}{}", tensor.name), tensor.shape)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sporran_kilt::kb::{EntityId, RelationId};

    use super::*;
    use crate::embedding::{TripleScorer, evaluate};

    /// Twelve entities on a circle: `next` advances by one, `skip` by two, `back` returns.
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
                // Every fifth triple is in the validation part.
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
            base(
                "conve",
                json!({ "height": 4, "filters": 2, "training": { "epochs": 12, "evaluate-every": 4, "ema-decay": 0.7 } }),
            ),
            base("rotate", json!({ "training": sampled })),
            base("transe", json!({ "training": sampled, "storage": "f16" })),
            // A batch has up to four of the twelve entities.
            base(
                "distmult",
                json!({ "storage": "f16", "candidate-dropout": 0.1, "training":
                { "epochs": 12, "batch-size": 2, "evaluate-every": 4, "sampled-entities": 3, "label-smoothing": 0.2 } }),
            ),
        ]
    }

    #[test]
    fn a_killed_training_ends_with_the_same_bytes() {
        for options in models() {
            let (whole, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let expected = run(&options, whole.path(), usize::MAX);
            // Training that stopped after epoch 6 resumes from the checkpoint after epoch 4.
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
    fn a_loss_that_is_no_number_ends_the_training() {
        let folder = tempfile::tempdir().unwrap();
        let options =
            options(json!({ "model": "complex", "dim": 8, "initial": "normal", "initial-scale": 1e30,
            "training": { "epochs": 2, "batch-size": 10, "evaluate-every": 1 } }));
        let kb = circle();
        let training =
            Training { kb: &kb, options: &options, seed: 5, folder: folder.path(), storage: Storage::F32 };
        let message = train(&training, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
        assert!(message.starts_with("epoch 1: expected a finite loss, found "), "{message}");
        assert!(!folder.path().join("model").exists());
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
    fn scales_and_shifts_of_normalisations_are_learned_if_requested() {
        let mut options = models().remove(2);
        for affine in [true, false] {
            options.affine = affine;
            let folder = tempfile::tempdir().unwrap();
            run(&options, folder.path(), usize::MAX);
            let model = EmbeddingModel::open(&folder.path().join("model")).unwrap();
            for (ending, first) in [("-scale", 1.0), ("-shift", 0.0)] {
                let tensors = model.parameters.tensors.iter().filter(|tensor| tensor.name.ends_with(ending));
                let are_first: Vec<bool> =
                    tensors.map(|tensor| tensor.values.iter().all(|value| *value == first)).collect();
                assert_eq!(are_first, [!affine; 2], "{ending}");
            }
        }
    }

    #[test]
    fn the_mean_of_the_epochs_is_kept_during_training() {
        let mut options = models().remove(3);
        let mut values = |epochs: usize, name: &str| {
            options.training.epochs = epochs;
            let folder = tempfile::tempdir().unwrap();
            run(&options, folder.path(), usize::MAX);
            let mapped = Mapped::open(&folder.path().join("checkpoint.safetensors")).unwrap();
            mapped.values(name, [12, 17]).unwrap()
        };
        let passes = [1, 2, 3, 4].map(|epochs| values(epochs, "entities"));
        assert!(passes[0] != passes[3]);
        // A plain mean of three, since two thirds are less than 0.7; then 0.7 of it.
        for (at, found) in values(4, "average.entities").iter().enumerate() {
            let [first, second, third, fourth] = [0, 1, 2, 3].map(|pass: usize| passes[pass][at]);
            let expected = 0.7 * (first + second + third) / 3.0 + 0.3 * fourth;
            assert!((found - expected).abs() < 1e-5, "{at}: {found} for {expected}");
        }
    }

    #[test]
    fn the_learning_rate_falls_after_milestones() {
        let mut options = models().remove(0);
        options.training.milestones = vec![2, 5];
        options.training.decay = 0.1;
        options.training.decay_patience = 100;
        let kb = circle();
        let folder = tempfile::tempdir().unwrap();
        let training =
            Training { kb: &kb, options: &options, seed: 5, folder: folder.path(), storage: Storage::F32 };
        let mut rates = Vec::new();
        train(&training, &mut |progress| {
            rates.push(progress.rate);
            ControlFlow::Continue(())
        })
        .unwrap();
        let expected = [0.1, 0.1, 0.01, 0.01, 0.01, 0.001, 0.001];
        assert!(rates.iter().zip(expected).all(|(found, rate)| (found - rate).abs() < 1e-9), "{rates:?}");
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
        // Every other answer instead of 1, or of 0, holds.
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
        assert!(report.all.mrr.or_zero() > 0.95, "{report:?}");
        assert_eq!(report.relations.len(), 3);
        // The model ranks equally in 16 bits.
        let half = tempfile::tempdir().unwrap();
        let training =
            Training { kb: &kb, options: &options, seed: 5, folder: half.path(), storage: Storage::F16 };
        let outcome = train(&training, &mut |_| ControlFlow::Continue(())).unwrap();
        let again = EmbeddingModel::open(&outcome.model).unwrap();
        let halved = evaluate(&again, &kb, kb.triples(Part::Train), &known).unwrap();
        assert!((halved.all.mrr.or_zero() - report.all.mrr.or_zero()).abs() < 0.02, "{halved:?}");
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
