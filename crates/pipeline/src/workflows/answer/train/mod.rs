//! Training of the generator's model on task files and retrieved passages.
//!
//! Training and runs use the same queries, index and prompt.

pub mod encoders;
mod examples;
pub(super) mod rag;
mod remembered;

use sporran_generator::GeneratorOptions;
use sporran_kilt::observe::Observer;
use sporran_training::session::Trained;

use self::{
    encoders::train_encoder,
    examples::{retrieved_examples, training},
    rag::{Rag, train_rag},
    remembered::assemble_remembering,
};
use super::{
    check::UNTRAINED,
    options::{General, Options},
};
use crate::{
    Diagnostic, Error, Result,
    run_dir::{folder::RunDir, inputs::Inputs, key::StepKey, training::TrainingFolder},
    tasks::files::task_files,
};

/// Trains the encoder of `[encoder-training]`, or the generator's model of `[train]`. A stopped training
/// resumes from its newest checkpoint.
///
/// # Errors
/// [`Error::Config`] without `[train]` or `[generator]`; errors of files, index, model or training.
pub fn train(options: &Options, observe: &mut Observer<'_>) -> Result<Trained> {
    let folder = RunDir::open(options.general.output.join(&options.general.name))?;
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

/// The key of a training: its options and inputs.
fn training_key(options: &Options, inputs: &mut Inputs) -> Result<StepKey> {
    let General { tasks, train, encoder_training, .. } = &options.general;
    let mut key = StepKey::training(options)?.without(&WITHOUT);
    if train.as_ref().is_some_and(|train| train.question_encoder.is_some()) {
        // Training writes the question encoder there.
        key = key.without(&["retriever.model"]);
    }
    let examples = train.as_ref().map(|train| (&train.examples, "train.examples"));
    let own = encoder_training.as_ref().and_then(|training| training.examples.as_ref());
    let tables = [Some((tasks, "tasks")), examples, own.map(|own| (own, "encoder-training.examples"))];
    for (tasks, table) in tables.into_iter().flatten() {
        for task in task_files(tasks, table)? {
            key = key.input(&format!("{table} {}", task.name), inputs.file(&task.path)?);
        }
    }
    Ok(key)
}

fn learn(options: &Options, underway: &TrainingFolder, observe: &mut Observer<'_>) -> Result<Trained> {
    if let Some(training) = &options.general.encoder_training {
        return train_encoder(options, training, underway, observe);
    }
    let missing = |key: &str| {
        let message = format!("is missing; training needs `[{key}]`");
        Error::Config(vec![sporran_config::Diagnostic {
            origin: "config".into(),
            line: 0,
            key: key.into(),
            message,
        }])
    };
    let train = options.general.train.as_ref().ok_or_else(|| missing("train"))?;
    let trainer = match &options.generator {
        // These two train a retriever and a generator together.
        Some(GeneratorOptions::RagToken(rag)) => return train_rag(options, train, Rag::Token(rag), observe),
        Some(GeneratorOptions::RagSequence(rag)) => {
            return train_rag(options, train, Rag::Sequence(rag), observe);
        }
        Some(generator) => generator
            .trainer()
            .ok_or_else(|| Error::Config(vec![Diagnostic::of_config("generator.kind", UNTRAINED)]))?,
        None => return Err(missing("generator")),
    };
    let assembly = assemble_remembering(options, underway, observe)?;
    let mut read = |files, table, limit, add_gold| {
        retrieved_examples(options, files, table, limit, trainer.passages(), add_gold, &assembly, observe)
    };
    let examples = read(&train.examples, "train.examples", None, train.add_gold && trainer.adds_gold())?;
    let validation = read(&options.general.tasks, "tasks", Some(train.validation_records), false)?;
    let training = training(options, train, &assembly, (examples, validation));
    Ok(trainer.train(training, observe)?)
}
