//! The order of a training: read task files, retrieve passages, call the stage whose model is trained.
//!
//! Training and runs use the same queries, index and prompt.

mod contrasts;
pub mod encoder_options;
mod encoders;
mod examples;
mod remembered;

use sporran_generator::{GeneratorTraining, LiveRetrieval, untrained};
use sporran_kilt::{Query, observe::Observer};
use sporran_retriever::dense::LiveDense;
use sporran_training::session::Trained;

use self::{
    contrasts::each_of_files, encoders::train_encoder, examples::retrieved_examples,
    remembered::assemble_remembering,
};
use super::{
    assemble::assemble_with,
    check::live_retriever,
    options::{General, Options},
};
use crate::{
    Diagnostic, Error, Result,
    run_dir::{folder::RunDir, inputs::Inputs, key::StepKey, training::TrainingFolder},
    tasks::{files::task_files, loader, options::TasksOptions},
};

/// Trains the encoder of `[encoder-training]`, or the generator's model of `[train]`. A stopped training
/// resumes from its newest checkpoint.
///
/// # Errors
/// [`Error::Config`] without `[train]` or `[generator]`; errors of files, index, model or training.
pub fn train(options: &Options, observe: &mut Observer<'_>) -> Result<Trained> {
    check_records(options)?;
    let folder = RunDir::open(options.general.output.join(&options.general.name))?;
    let encoder = options.encoder_training.as_ref().map(|training| training.encoder.model());
    if let Some(model) = encoder.or(options.general.train.as_ref().map(|train| train.model.as_path())) {
        folder.check_foreign(model)?;
    }
    let mut inputs = Inputs::default();
    let key = training_key(options, &mut inputs)?;
    let underway = TrainingFolder::begin_with(folder, inputs, key, options)?;
    let trained = learn(options, &underway, observe)?;
    underway.finish((&trained).into())?;
    Ok(trained)
}

/// Options that do not change a training: folders of models and indexes, and options of runs. Each task file is a separate
/// part of the key.
const WITHOUT: [&str; 12] = [
    "evidence",
    "source.indexes",
    "tasks.folder",
    "tasks.gold",
    "train.model",
    "train.examples.folder",
    "encoder-training.model",
    "encoder-training.examples.folder",
    "generator.model",
    "generator.pages.model",
    "generator.selection.model",
    "generator.precision",
];

/// The tables with the task files of a training: for validation, and for training.
fn tables_of(options: &Options) -> impl Iterator<Item = (&TasksOptions, &'static str)> {
    let General { tasks, train, .. } = &options.general;
    let examples = train.as_ref().map(|train| (&train.examples, "train.examples"));
    let own = options.encoder_training.as_ref().and_then(|training| training.records.examples.as_ref());
    let own = own.map(|own| (own, "encoder-training.examples"));
    [Some((tasks, "tasks")), examples, own].into_iter().flatten()
}

/// Reads all records of a training, so that a wrong one is reported before an index is built or a model is loaded.
fn check_records(options: &Options) -> Result<()> {
    for (tasks, table) in tables_of(options) {
        loader::check(&task_files(tasks, table)?)?;
    }
    match &options.encoder_training {
        Some(training) => each_of_files(&training.records, |_| {}),
        None => Ok(()),
    }
}

/// The key of a training: its options and inputs.
fn training_key(options: &Options, inputs: &mut Inputs) -> Result<StepKey> {
    let mut key = StepKey::training(options)?.without(&WITHOUT);
    if options.general.train.as_ref().is_some_and(|train| train.question_encoder.is_some()) {
        // Training writes the question encoder there.
        key = key.without(&["retriever.model"]);
    }
    for (tasks, table) in tables_of(options) {
        for task in task_files(tasks, table)? {
            key = key.input(&format!("{table} {}", task.name), inputs.file(&task.path)?);
            if let Some(qrels) = &task.qrels {
                key = key.input(&format!("{table} {} qrels", task.name), inputs.file(qrels)?);
            }
        }
    }
    Ok(key)
}

fn learn(options: &Options, underway: &TrainingFolder, observe: &mut Observer<'_>) -> Result<Trained> {
    if let Some(training) = &options.encoder_training {
        return train_encoder(options, training, underway, observe);
    }
    let fault = |key: &str, message: &str| Error::Config(vec![Diagnostic::of_config(key, message)]);
    let missing = |key: &str| fault(key, &format!("is missing; training needs `[{key}]`"));
    let train = options.general.train.as_ref().ok_or_else(|| missing("train"))?;
    let generator = options.generator.as_ref().ok_or_else(|| missing("generator"))?;
    let trainer = generator.trainer().ok_or_else(|| fault("generator.kind", &untrained()))?;
    let query = |query: &Query| options.general.for_retrieval(query);
    let index;
    let (assembly, live) = if trainer.is_live() {
        let written = live_retriever(options).map_err(|(key, message)| fault(&key, message))?;
        let from = train.question_encoder.as_deref();
        // The records have no passages: training retrieves them with the current question encoder.
        let (assembly, opened) =
            assemble_with(options, observe, |site| LiveDense::open(written, from, site))?;
        index = opened;
        (assembly, Some(LiveRetrieval { index: &index, query: &query }))
    } else {
        (assemble_remembering(options, underway, observe)?, None)
    };
    let mut read = |files, table, limit, add_gold| {
        retrieved_examples(options, files, table, limit, trainer.passages(), add_gold, &assembly, observe)
    };
    let examples = read(&train.examples, "train.examples", None, train.add_gold && trainer.adds_gold())?;
    let validation = read(&options.general.tasks, "tasks", Some(train.validation_records), false)?;
    let training = GeneratorTraining {
        settings: train.settings(),
        examples,
        validation,
        store: assembly.store.clone(),
        name: &options.general.name,
        seed: options.general.seed,
        folder: options.general.output.join(&options.general.name),
        live,
        score: None,
    };
    Ok(trainer.train(training, observe)?)
}
