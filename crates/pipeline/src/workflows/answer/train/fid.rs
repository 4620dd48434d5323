//! Training Fusion-in-Decoder: the answer is learned from all passages at once, each encoded with the input apart.

use sporran_generator::{FidGenerator, FidOptions};
use sporran_training::{EvaluationError, FidObjective, FidRow};

use crate::{
    Result,
    observe::Observer,
    training::{model::Pupil, outcome::Trained},
    workflows::answer::{
        assemble::assemble_retrieval,
        options::{Options, TrainOptions},
        train::{
            examples::{judged_score, readings},
            start::{learning, pupil},
        },
    },
};

/// Trains the model of a `fid` generator on the records of `[train.examples]` and judges it by its answers on `[tasks]`.
///
/// # Errors
/// Whatever is wrong with files, index, model or training.
pub(crate) fn train_fid(
    options: &Options,
    train: &TrainOptions,
    fid: &FidOptions,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let assembly = assemble_retrieval(options, observe)?;
    let mut read = |files, table, limit, add_gold| {
        readings(options, files, table, limit, fid.prompt.passages, add_gold, &assembly, observe)
    };
    let examples = read(&train.examples, "train.examples", None, train.add_gold)?;
    let judged = read(&options.general.tasks, "tasks", Some(train.judged), false)?;
    let Pupil { model, tokenizer, variables, companions } = pupil(options, train, &assembly, &examples)?;
    let judge = FidGenerator::new(fid, model.clone(), tokenizer.clone())?;
    let rows: Vec<FidRow> = examples
        .iter()
        .map(|reading| {
            let answers = reading.example.answers();
            // Records without an answer are not read.
            let target = answers.first().copied().unwrap_or_default();
            Ok(FidRow {
                texts: reading.ask(|request| judge.rows(request))?,
                target: tokenizer.encode(target, Some(train.target_tokens))?,
            })
        })
        .collect::<Result<_>>()?;
    let objective = FidObjective::new(model.as_ref(), &variables, &rows, &train.optimizer)?;
    let judge = || judged_score(&judge, &judged).map_err(EvaluationError::from);
    let learning = learning(&options.general, train, &variables, &companions);
    learning.run(&objective, (!judged.is_empty()).then_some(&judge), observe)
}
