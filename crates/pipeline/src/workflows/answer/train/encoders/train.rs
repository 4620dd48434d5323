//! The training data of an encoder and its training.

use sporran_kilt::observe::Observer;
use sporran_reranker::{CrossEncoderTraining, train_cross_encoder};
use sporran_retriever::dense::{BiEncoderTraining, train_bi_encoder};
use sporran_training::session::{EncoderSession, Trained};

use super::{
    EncoderKind, EncoderTraining,
    contrasts::{of_files, of_tasks},
};
use crate::{
    Error, Result,
    run_dir::training::TrainingFolder,
    workflows::answer::{options::Options, train::remembered::assemble_remembering},
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
    let fault = |key: &str, message: &str| {
        let diagnostic = sporran_config::Diagnostic {
            origin: "config".into(),
            line: 0,
            key: key.into(),
            message: message.into(),
        };
        Error::Config(vec![diagnostic])
    };
    let assembly = assemble_remembering(options, underway, observe)?;
    let (Some(retriever), Some(store)) = (&assembly.retriever, &assembly.store) else {
        return Err(fault("retriever", "is missing; it mines hard negatives"));
    };
    let search = (&**retriever, &**store);
    let mut examples = of_files(training)?;
    if let Some(tasks) = &training.examples {
        let table = (tasks, "encoder-training.examples");
        examples.extend(of_tasks(options, training, table, usize::MAX, search, observe)?);
    }
    if examples.is_empty() {
        return Err(fault("encoder-training", "expected `data`, `dialogues` or `examples` as training data"));
    }
    let table = (&options.general.tasks, "tasks");
    let validation = of_tasks(options, training, table, training.validation_records, search, observe)?;

    let checkpoints = options.general.output.join(&options.general.name).join("training");
    let session = EncoderSession {
        from: &training.from,
        model: &training.model,
        checkpoints: &checkpoints,
        seed: options.general.seed,
        max_tokens: training.max_tokens,
        truncation: training.truncation,
        optimizer: &training.optimizer,
        device: training.device,
    };
    let EncoderTraining { negatives, pooling, similarity, scale, loss, .. } = *training;
    Ok(match training.kind {
        EncoderKind::BiEncoder => {
            let training = BiEncoderTraining { session, negatives, pooling, similarity, scale };
            train_bi_encoder(&training, examples, &validation, observe)?
        }
        EncoderKind::CrossEncoder => {
            let training = CrossEncoderTraining { session, negatives, loss };
            train_cross_encoder(&training, examples, &validation, observe)?
        }
    })
}
