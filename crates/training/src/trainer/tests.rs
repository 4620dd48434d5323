use std::cell::Cell;
use std::fs;
use std::io::Write;

use candle_core::Var;
use sporran_kernels::TrainingPrecision;
use sporran_transformers::T5;

use super::*;
use crate::{
    data::Row,
    seq2seq::{
        Seq2SeqObjective,
        tests::{build, examples},
    },
};

fn options(steps: u64) -> TrainingOptions {
    TrainingOptions {
        seed: 3,
        steps,
        tokens_per_batch: 24,
        batches_per_step: 2,
        learning_rate: 5e-3,
        warmup_steps: Some(2),
        ..TrainingOptions::default()
    }
}

/// Learns `rows` in every epoch.
fn objective<'a>(
    model: &'a T5,
    variables: &Variables,
    options: &'a TrainingOptions,
    rows: &'a (dyn Fn(u64) -> Result<Arc<Vec<Row>>> + Sync),
) -> Seq2SeqObjective<'a> {
    Seq2SeqObjective::new(model, variables, options, rows)
}

fn flat(variables: &Variables) -> Vec<(String, Vec<f32>)> {
    let values = |var: Var| var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    variables.all().into_iter().map(|(name, var)| (name, values(var))).collect()
}

/// Trains a fresh model in `folder`; breaks after step `stop`. Returns the weights and the history.
fn run(
    folder: &Path,
    options: &TrainingOptions,
    dropout: f64,
    stop: u64,
) -> (Vec<(String, Vec<f32>)>, Outcome) {
    run_until(folder, options, dropout, &mut |progress| {
        if progress.step == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// As [`run`], until `stopping` breaks.
fn run_until(
    folder: &Path,
    options: &TrainingOptions,
    dropout: f64,
    stopping: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> (Vec<(String, Vec<f32>)>, Outcome) {
    let (model, variables) = build(dropout);
    let rows = examples(20);
    let rows = |_| Ok(rows.clone());
    let training = Training {
        objective: &objective(&model, &variables, options, &rows),
        variables: &variables,
        options,
        evaluate: None,
        folder,
        extra_files: &[],
    };
    let outcome = train(&training, stopping).unwrap();
    (flat(&variables), outcome)
}

#[test]
fn eight_examples_are_learned_by_heart() {
    let folder = tempfile::tempdir().unwrap();
    let (model, variables) = build(0.0);
    let rows = examples(8);
    let options = TrainingOptions { tokens_per_batch: 200, batches_per_step: 1, ..options(300) };
    let rows = |_| Ok(rows.clone());
    let training = Training {
        objective: &objective(&model, &variables, &options, &rows),
        variables: &variables,
        options: &options,
        evaluate: None,
        folder: folder.path(),
        extra_files: &[],
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

    // A callback that unwinds, as Ctrl-C makes it, stops a training as one that breaks.
    let unwound = tempfile::tempdir().unwrap();
    let stopped = catch_unwind(|| {
        run_until(unwound.path(), &options, 0.2, &mut |progress| match progress.step {
            7 => resume_unwind(Box::new("stopped")),
            _ => ControlFlow::Continue(()),
        })
    });
    assert_eq!(stopped.unwrap_err().downcast_ref(), Some(&"stopped"));
    let mut first = None;
    let (got, _) = run_until(unwound.path(), &options, 0.2, &mut |progress| {
        first.get_or_insert(progress.step);
        ControlFlow::Continue(())
    });
    assert_eq!((got, first), (expected, Some(8)));
    assert_eq!(history(unwound.path()), history(whole.path()));
}

#[test]
fn a_kill_between_checkpoints_loses_nothing_but_time() {
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = TrainingOptions { checkpoint_every: 4, evaluate_every: 6, ..options(12) };
    let (expected, _) = run(whole.path(), &options, 0.0, 0);
    // An evaluation that fails at step 6 leaves the folder as a kill does: checkpoint 4, history to step 5.
    let (model, variables) = build(0.0);
    let rows = examples(20);
    let rows = |_| Ok(rows.clone());
    let training = Training {
        objective: &objective(&model, &variables, &options, &rows),
        variables: &variables,
        options: &options,
        evaluate: Some(&|| Err("killed".into())),
        folder: killed.path(),
        extra_files: &[],
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
fn the_precision_of_the_options_is_that_of_the_products_whatever_the_number_of_threads() {
    let options = |precision, parallel_batches| TrainingOptions { precision, parallel_batches, ..options(4) };
    let weights = |precision, parallel_batches| {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &options(precision, parallel_batches), 0.1, 0).0
    };
    let rounded = weights(TrainingPrecision::Bf16, 1);
    assert_eq!(rounded, weights(TrainingPrecision::Bf16, 2));
    assert_eq!(rounded != weights(TrainingPrecision::F32, 1), TrainingPrecision::Bf16.rounds());
}

#[test]
fn the_best_weights_are_kept_and_patience_ends_the_training() {
    let folder = tempfile::tempdir().unwrap();
    let (model, variables) = build(0.0);
    let rows = examples(20);
    let options = TrainingOptions { evaluate_every: 2, patience: 3, ..options(40) };
    let scores = Cell::new([0.1, 0.5, 0.4, 0.5, 0.2].into_iter());
    let rows = |_| Ok(rows.clone());
    let training = Training {
        objective: &objective(&model, &variables, &options, &rows),
        variables: &variables,
        options: &options,
        evaluate: Some(&|| {
            let mut left = scores.take();
            let next = left.next().ok_or("more evaluations than patience allows")?;
            scores.set(left);
            Ok(next)
        }),
        folder: folder.path(),
        extra_files: &[("config.json".into(), b"{}".to_vec())],
    };
    let outcome = train(&training, &mut |_| ControlFlow::Continue(())).unwrap();
    // The second evaluation, at step 4, is the best; an equal one later is not better; three more end it.
    assert_eq!((outcome.best, outcome.step, outcome.finished), (Some((4, 0.5)), 10, true));
    let best = outcome.best_folder.unwrap();
    assert!(best.ends_with("best-00000004") && best.join("config.json").exists());
}

#[test]
fn passes_over_the_data_end_with_a_step_and_an_evaluation_each() {
    let folder = tempfile::tempdir().unwrap();
    let (model, variables) = build(0.0);
    let rows = examples(20);
    let options = TrainingOptions { epochs: 3, batches_per_step: 4, ..options(1) };
    let rows = |_| Ok(rows.clone());
    let learned = objective(&model, &variables, &options, &rows);
    // The order, and with it the number of batches, differs from epoch to epoch.
    let expected: Vec<(u64, bool)> = (0..3)
        .flat_map(|epoch| {
            let steps = learned.epoch(epoch).unwrap().len().div_ceil(4);
            (1..=steps).map(move |step| (epoch, step == steps))
        })
        .collect();
    let calls = Cell::new(0);
    let training = Training {
        objective: &learned,
        variables: &variables,
        options: &options,
        evaluate: Some(&|| {
            calls.set(calls.get() + 1);
            Ok(f64::from(calls.get()))
        }),
        folder: folder.path(),
        extra_files: &[],
    };
    let mut epochs = Vec::new();
    let outcome = train(&training, &mut |progress| {
        epochs.push((progress.epoch, progress.score.is_some()));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!((outcome.step as usize, calls.get()), (expected.len(), 3));
    assert_eq!(epochs, expected);
}

#[test]
fn a_checkpoint_of_other_options_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &options(3), 0.0, 0);
    let (model, variables) = build(0.0);
    let other = TrainingOptions { seed: 4, ..options(3) };
    let rows = examples(20);
    let rows = |_| Ok(rows.clone());
    let training = Training {
        objective: &objective(&model, &variables, &other, &rows),
        variables: &variables,
        options: &other,
        evaluate: None,
        folder: folder.path(),
        extra_files: &[],
    };
    let message = train(&training, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
    assert!(message.ends_with("expected seed = 4, found seed = 3"), "{message}");
}

#[test]
fn checkpoints_are_due_by_steps_or_else_by_time() {
    let minute = Duration::from_secs(60);
    assert!(is_checkpoint_due(8, 4, Duration::ZERO) && !is_checkpoint_due(9, 4, 60 * minute));
    assert!(is_checkpoint_due(9, 0, 5 * minute) && !is_checkpoint_due(8, 0, 4 * minute));
}
