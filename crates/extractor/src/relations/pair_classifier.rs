//! The classifier of mention pairs that a config trains, and the division of its documents.

use std::path::Path;

use sporran_kilt::{knowledgenet, observe::Observer};
use sporran_transformers::DeviceName;

use super::{
    Annotated, BilstmTraining, HeldOut, LinearTraining, MarkedTraining, Properties, RelationTraining,
    TrainedRelationModel, train_averaged,
};
use crate::{Link, Result};

/// The inputs and outputs of a training on annotated documents.
pub struct PairData<'a> {
    /// The possible properties.
    pub properties: &'a Properties,
    /// The documents as they were annotated.
    pub sources: &'a [knowledgenet::Document],
    /// The same documents with their mentions, candidates and labels.
    pub documents: Vec<Annotated>,
    /// The links of the mentions of each document; `None` without a linker.
    pub links: &'a [Option<Vec<Option<Link>>>],
    /// Documents with the probabilities of a teacher as labels.
    pub teacher_documents: Vec<Annotated>,
    /// For each document whether it is held out for validation.
    pub held_out: &'a [bool],
    /// The number of parts of a cross-validation.
    pub parts: usize,
    /// The title of the progress of a linear model.
    pub title: String,
    /// The device.
    pub device: DeviceName,
    /// The seed of all random choices.
    pub seed: u64,
    /// The folder of the checkpoints.
    pub checkpoints: &'a Path,
    /// The folder of the trained model.
    pub model: &'a Path,
}

impl<'a> PairData<'a> {
    /// The training without documents.
    fn training(&self) -> RelationTraining<'a> {
        RelationTraining {
            properties: self.properties,
            documents: &[],
            validation: &[],
            device: self.device,
            seed: self.seed,
            checkpoints: self.checkpoints,
            model: self.model,
        }
    }

    /// Calls `train` with the documents divided into those of the training and those of the validation.
    fn divided<T>(self, train: impl FnOnce(&RelationTraining<'_>) -> T) -> T {
        let training = self.training();
        let Self { sources, documents, links, teacher_documents, held_out, .. } = self;
        let (mut training_documents, mut validation) = (Vec::new(), Vec::new());
        for (at, document) in documents.into_iter().enumerate() {
            if held_out[at] {
                validation.push(document);
            } else {
                training_documents.push(document);
            }
        }
        tracing::info!(
            training = training_documents.len(),
            validation = validation.len(),
            "annotated documents"
        );
        training_documents.extend(teacher_documents);
        let numbers = (0..sources.len()).filter(|at| held_out[*at]);
        let validation: Vec<HeldOut<'_>> = numbers
            .zip(&validation)
            .map(|(at, annotated)| HeldOut { source: &sources[at], annotated, links: links[at].as_deref() })
            .collect();
        train(&RelationTraining { documents: &training_documents, validation: &validation, ..training })
    }

    /// Trains a linear model. Its cross-validation holds each document out once.
    fn cross_validated(
        self,
        linear: &LinearTraining,
        observe: &mut Observer<'_>,
    ) -> Result<TrainedRelationModel> {
        let training = self.training();
        let Self { sources, documents, links, teacher_documents, parts, title, .. } = self;
        let each = sources.iter().zip(&documents).zip(links);
        let held_out: Vec<HeldOut<'_>> = each
            .map(|((source, annotated), links)| HeldOut { source, annotated, links: links.as_deref() })
            .collect();
        let training = RelationTraining { documents: &documents, validation: &held_out, ..training };
        linear.train(&training, teacher_documents, parts, title, observe)
    }
}

/// The training options of a classifier of mention pairs.
#[derive(Clone, Copy, Debug)]
pub enum PairClassifier<'a> {
    /// A linear model.
    Linear(&'a LinearTraining),
    /// A BiLSTM.
    Bilstm(&'a BilstmTraining),
    /// The mean of a linear model and an encoder over marked mentions.
    Averaged(&'a LinearTraining, &'a MarkedTraining),
    /// An encoder over marked mentions.
    Marked(&'a MarkedTraining),
}

impl PairClassifier<'_> {
    /// Trains the classifier and saves it. A stopped training resumes from its newest checkpoint.
    ///
    /// # Errors
    /// Errors of the initial encoder or of the training.
    pub fn train(self, data: PairData<'_>, observe: &mut Observer<'_>) -> Result<TrainedRelationModel> {
        match self {
            Self::Linear(linear) => data.cross_validated(linear, observe),
            Self::Bilstm(bilstm) => data.divided(|training| bilstm.train(training, observe)),
            Self::Averaged(linear, marked) => {
                data.divided(|training| train_averaged((linear, marked), training, observe))
            }
            Self::Marked(marked) => data.divided(|training| marked.train(training, observe)),
        }
    }
}
