//! The weighted mean of a linear model and an encoder. Weights and thresholds are tuned on the validation documents.

use std::path::Path;

use sporran_kilt::observe::Observer;
use sporran_transformers::{DeviceName, Precision};

use super::{AveragedOptions, AveragedPart};
use crate::{
    Result,
    relations::{
        Annotated, LinearData, LinearRelations, LinearTraining, MarkedEntities, MarkedTraining,
        MaximumRecall, Reach, RelationModel, RelationTraining, Scores, Thresholds, TrainedRelationModel,
        marked::MarkedTrainer, validation::with_scores,
    },
};

/// The subfolders of the linear model and of the encoder.
const PARTS: [&str; 2] = ["linear", "marked"];
/// The candidate weights of the encoder; the linear model has the remainder.
const WEIGHTS: [f32; 5] = [0.3, 0.4, 0.5, 0.6, 0.7];

/// Trains a linear model and an encoder over marked mentions, tunes the weights of their mean, and saves all of them.
/// A stopped training resumes from its newest checkpoint.
///
/// # Errors
/// Errors of the initial encoder or of the training.
pub fn train_averaged(
    (linear, marked): (&LinearTraining, &MarkedTraining),
    training: &RelationTraining<'_>,
    observe: &mut Observer<'_>,
) -> Result<TrainedRelationModel> {
    let RelationTraining { properties, documents, validation, device, seed, model, .. } = *training;
    let trainer = MarkedTrainer::new(marked, training)?;
    // A linear model classifies every pair, an encoder only the pairs within its token limit.
    let reached = Reach::of(validation, properties, |_, _, _, _| true);
    let maximum_recall = MaximumRecall::reported(reached, validation.len(), observe);
    let steps = trainer.optimise(training, &model.join(PARTS[1]), observe)?;
    let data = LinearData::of(documents, properties.len(), linear.buckets);
    let first = LinearRelations::train(&data, properties, linear, seed, |_| true);
    first.save(&model.join(PARTS[0]))?;
    let f1 = average(&first, (model, device), &training.annotated_validation())?;
    Ok(training.result(steps, maximum_recall, f1))
}

/// Saves the average of the linear model and the encoder in `model`. Tunes weights and thresholds on the validation documents.
/// Returns their micro F1.
fn average(
    linear: &LinearRelations,
    (model, device): (&Path, DeviceName),
    validation: &[&Annotated],
) -> Result<f64> {
    let marked = MarkedEntities::load(&model.join(PARTS[1]), device, Precision::F32)?;
    let properties = marked.properties();
    let mut both = Vec::with_capacity(validation.len());
    for annotated in validation {
        let inputs = annotated.inputs();
        both.push((linear.score(&inputs)?, marked.score(&inputs)?));
    }
    let mut best: Option<(f64, f32, Thresholds)> = None;
    for weight in WEIGHTS {
        let scored: Vec<Vec<Scores>> = validation
            .iter()
            .zip(&both)
            .map(|(annotated, (first, second))| {
                let pairs = annotated.candidates.iter().map(|candidates| &candidates.pairs);
                let sentences = first.iter().zip(second).zip(pairs);
                sentences
                    .map(|((first, second), pairs)| {
                        let parts = [(first.clone(), 1.0 - weight), (second.clone(), weight)];
                        Scores::averaged(&parts).joint(pairs, properties)
                    })
                    .collect()
            })
            .collect();
        let joined = with_scores(validation, &scored);
        let thresholds = Thresholds::tuned(properties.len(), &joined);
        let f1 = thresholds.micro_f1(&joined);
        tracing::info!(weight, f1, "weight of the encoder");
        if best.as_ref().is_none_or(|(best_f1, ..)| f1 > *best_f1) {
            best = Some((f1, weight, thresholds));
        }
    }
    let (f1, weight, thresholds) = best.unwrap_or((0.0, 0.5, Thresholds::even(properties.len(), 0.5)));
    let part = |folder: &str, weight| AveragedPart { folder: folder.into(), weight };
    let parts = vec![part(PARTS[0], 1.0 - weight), part(PARTS[1], weight)];
    AveragedOptions { version: AveragedOptions::VERSION, parts, thresholds }.save(model)?;
    Ok(f1)
}
