//! Training of Fusion-in-Decoder: each passage is encoded with the input; the decoder attends to all of them.

use sporran_generator::{FidGenerator, FidOptions};
use sporran_kilt::observe::Observer;
use sporran_training::{
    EvaluationError, FidObjective, FidRow,
    session::{TrainableModel, Trained},
};

use crate::{
    Result,
    run_dir::training::TrainingFolder,
    workflows::answer::{
        options::{Options, TrainOptions},
        train::{
            examples::{mean_score, retrieved_examples},
            remembered::assemble_remembering,
            start::{init_model, training_session},
        },
    },
};

/// Trains the model of a `fid` generator on the records of `[train.examples]` and validates its answers on `[tasks]`.
///
/// # Errors
/// Errors of files, index, model or training.
pub(crate) fn train_fid(
    options: &Options,
    train: &TrainOptions,
    fid: &FidOptions,
    underway: &TrainingFolder,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let assembly = assemble_remembering(options, underway, observe)?;
    let mut read = |files, table, limit, add_gold| {
        retrieved_examples(options, files, table, limit, fid.prompt.passages, add_gold, &assembly, observe)
    };
    let examples = read(&train.examples, "train.examples", None, train.add_gold)?;
    let validation = read(&options.general.tasks, "tasks", Some(train.validation_records), false)?;
    let TrainableModel { model, tokenizer, variables, extra_files } =
        init_model(options, train, &assembly, &examples)?;
    let generator = FidGenerator::new(fid, model.clone(), tokenizer.clone())?;
    let rows: Vec<FidRow> = examples
        .iter()
        .map(|retrieved| {
            let answers = retrieved.example.answers();
            // `retrieved_examples` skips records without an answer.
            let target = answers.first().copied().unwrap_or_default();
            Ok(FidRow {
                texts: retrieved.ask(|request| generator.rows(request))?,
                target: tokenizer.encode(target, Some(train.target_tokens))?,
            })
        })
        .collect::<Result<_>>()?;
    let objective = FidObjective::new(model.as_ref(), &variables, &rows, &train.optimizer)?;
    let evaluate = || mean_score(&generator, &validation).map_err(EvaluationError::from);
    let session = training_session(&options.general, train, &variables, &extra_files);
    session.run(&objective, (!validation.is_empty()).then_some(&evaluate), observe)
}
