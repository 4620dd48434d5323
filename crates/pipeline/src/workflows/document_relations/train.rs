//! Training of a model of document-level relations.

use sporran_config::Diagnostic;
use sporran_extractor::document_relations::{DocumentTraining, TrainedDocuments, train as train_model};
use sporran_kilt::{docred, observe::Observer};

use super::options::DocumentsOptions;
use crate::{Error, Result, run_dir::training::TrainingFolder};

/// Options that do not change the training: the model's folder, and options of `sporran run`.
const WITHOUT: [&str; 3] =
    ["document-relations.model", "document-relations.files", "document-relations.precision"];

/// Trains `[document-relations]`. A stopped training resumes from its newest checkpoint.
///
/// # Errors
/// [`Error::Config`] without a table of the training; errors of files, models or training.
pub fn train(options: &DocumentsOptions, observe: &mut Observer<'_>) -> Result<TrainedDocuments> {
    let own = &options.document_relations;
    let Some(training) = &own.training else {
        let message = "is missing; training needs it";
        return Err(Error::Config(vec![Diagnostic::of_config("document-relations.training", message)]));
    };
    let mut underway = TrainingFolder::begin(options.folder(), options, &WITHOUT)?.writing(&options.model());
    let mut documents = Vec::new();
    for path in &training.files {
        documents.extend(docred::load(path)?);
    }
    underway.verify()?;
    let training = DocumentTraining {
        options: training,
        documents: &documents,
        device: own.device,
        seed: options.seed,
        checkpoints: &options.folder().join("training"),
        model: &options.model(),
    };
    let trained = train_model(&training, observe)?;
    underway.finish((&trained.trained).into())?;
    Ok(trained)
}
