//! The weighted mean of a linear model and an encoder. Weights and thresholds are tuned on the validation documents.

use std::path::Path;

use sporran_extractor::relations::{
    Annotated, AveragedOptions, AveragedPart, LinearRelations, MarkedEntities, RelationModel, Scores,
    Thresholds,
};
use sporran_transformers::Precision;

use super::{
    options::PopulationOptions,
    train::{classifier_inputs, micro},
};
use crate::Result;

/// The subfolders of the linear model and of the encoder.
pub(super) const PARTS: [&str; 2] = ["linear", "marked"];
/// The candidate weights of the encoder; the linear model has the remainder.
const WEIGHTS: [f32; 5] = [0.3, 0.4, 0.5, 0.6, 0.7];

/// Saves the average of the linear model and the encoder in `model`. Tunes weights and thresholds on the validation documents.
/// Returns their micro F1.
pub(super) fn average(
    linear: &LinearRelations,
    (options, model): (&PopulationOptions, &Path),
    validation: &[Annotated],
) -> Result<f64> {
    let device = &options.relations.device;
    let marked = MarkedEntities::load(&model.join(PARTS[1]), *device, Precision::F32)?;
    let properties = marked.properties();
    let mut both = Vec::with_capacity(validation.len());
    for annotated in validation {
        let inputs = classifier_inputs(annotated);
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
        let joined: Vec<(&Annotated, &[Scores])> =
            validation.iter().zip(&scored).map(|(a, s)| (a, &**s)).collect();
        let thresholds = Thresholds::tuned(properties.len(), &joined);
        let f1 = micro(&thresholds, &joined);
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
