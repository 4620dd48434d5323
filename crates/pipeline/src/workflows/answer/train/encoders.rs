//! The order of an encoder's training: read files, mine negatives, train.

use sporran_kilt::observe::Observer;
use sporran_training::session::{ContrastTraining, Trained};

use super::{
    contrasts::{of_files, of_tasks},
    encoder_options::EncoderTraining,
    remembered::assemble_remembering,
};
use crate::{
    Diagnostic, Error, Result, run_dir::training::TrainingFolder, workflows::answer::options::Options,
};

/// Trains the encoder of `[encoder-training]`. A stopped training resumes from its newest checkpoint.
///
/// # Errors
/// [`Error::Config`] without training data or without a retriever; errors of files, indexes, model or training.
pub(crate) fn train_encoder(
    options: &Options,
    training: &EncoderTraining,
    underway: &TrainingFolder,
    observe: &mut Observer<'_>,
) -> Result<Trained> {
    let fault = |key: &str, message: &str| Error::Config(vec![Diagnostic::of_config(key, message)]);
    let assembly = assemble_remembering(options, underway, observe)?;
    let (Some(retriever), Some(store)) = (&assembly.retriever, &assembly.store) else {
        return Err(fault("retriever", "is missing; it mines hard negatives"));
    };
    let (search, records) = ((&**retriever, &**store), &training.records);
    let mut examples = of_files(records)?;
    if let Some(tasks) = &records.examples {
        let table = (tasks, "encoder-training.examples");
        examples.extend(of_tasks(options, records, table, usize::MAX, search, observe)?);
    }
    if examples.is_empty() {
        return Err(fault("encoder-training", "expected `data`, `dialogues` or `examples` as training data"));
    }
    let table = (&options.general.tasks, "tasks");
    let validation = of_tasks(options, records, table, records.validation_records, search, observe)?;

    let checkpoints = options.general.output.join(&options.general.name).join("training");
    let seed = options.general.seed;
    let data = ContrastTraining { examples, validation, checkpoints: &checkpoints, seed };
    training.encoder.train(data, observe)
}
