//! The inputs and results that all trainings of relation classifiers share.

use std::path::Path;

use sporran_kilt::scores::Measure;
use sporran_transformers::DeviceName;

use super::{Annotated, HeldOut, MaximumRecall, Properties};

/// The inputs and outputs of a training that do not depend on the kind of model.
#[derive(Clone, Copy)]
pub struct RelationTraining<'a> {
    /// The possible properties.
    pub properties: &'a Properties,
    /// The training documents.
    pub documents: &'a [Annotated],
    /// The validation documents, for thresholds and scores.
    pub validation: &'a [HeldOut<'a>],
    /// The device.
    pub device: DeviceName,
    /// The seed of all random choices.
    pub seed: u64,
    /// The folder of the checkpoints.
    pub checkpoints: &'a Path,
    /// The folder of the trained model.
    pub model: &'a Path,
}

impl<'a> RelationTraining<'a> {
    /// The validation documents without their sources.
    pub(super) fn annotated_validation(&self) -> Vec<&'a Annotated> {
        self.validation.iter().map(|held_out| held_out.annotated).collect()
    }

    /// The result of a training with this F1 on the validation documents.
    pub(super) fn result(&self, steps: u64, maximum_recall: MaximumRecall, f1: f64) -> TrainedRelationModel {
        let validation_f1 = if self.validation.is_empty() { Measure::default() } else { f1.into() };
        TrainedRelationModel { steps, maximum_recall, validation_f1 }
    }
}

/// The result of a training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainedRelationModel {
    /// The number of optimizer steps, or of epochs of a linear model.
    pub steps: u64,
    /// The maximum recall on the validation documents.
    pub maximum_recall: MaximumRecall,
    /// The micro F1 of facts on the validation documents, with thresholds tuned on them; none without such documents.
    pub validation_f1: Measure,
}
