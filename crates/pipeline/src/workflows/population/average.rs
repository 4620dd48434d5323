//! The mean of a linear model and an encoder, whose weights and thresholds judged documents decide on.

use std::path::Path;

use sporran_extractor::relations::{
    Annotated, AveragedOptions, AveragedPart, LinearRelations, MarkedEntities, RelationModel, Scores,
    Thresholds,
};
use sporran_transformers::Precision;

use super::{
    options::PopulationOptions,
    train::{asked, micro},
};
use crate::Result;

/// The folders of the linear model and of the encoder where both are averaged.
pub(super) const PARTS: [&str; 2] = ["linear", "marked"];
/// Weights of the encoder that are tried; the linear model has the rest.
const WEIGHTS: [f32; 5] = [0.3, 0.4, 0.5, 0.6, 0.7];

/// Writes the average of a linear model and the encoder beside it. Documents that neither learned from decide on weights
/// and thresholds; gives F1 with them.
pub(super) fn average(
    linear: &LinearRelations,
    (options, model): (&PopulationOptions, &Path),
    judges: &[Annotated],
) -> Result<f64> {
    let device = &options.relations.device;
    let marked = MarkedEntities::load(&model.join(PARTS[1]), *device, Precision::F32)?;
    let properties = marked.properties();
    let mut both = Vec::with_capacity(judges.len());
    for annotated in judges {
        let asked = asked(annotated);
        both.push((linear.score(&asked)?, marked.score(&asked)?));
    }
    let mut best: Option<(f64, f32, Thresholds)> = None;
    for weight in WEIGHTS {
        let scored: Vec<Vec<Scores>> = judges
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
            judges.iter().zip(&scored).map(|(a, s)| (a, &**s)).collect();
        let thresholds = Thresholds::tuned(properties.len(), &joined);
        let judged = micro(&thresholds, &joined);
        tracing::info!(weight, judged, "weight of the encoder");
        if best.as_ref().is_none_or(|(most, ..)| judged > *most) {
            best = Some((judged, weight, thresholds));
        }
    }
    let (judged, weight, thresholds) = best.unwrap_or((0.0, 0.5, Thresholds::even(properties.len(), 0.5)));
    let part = |folder: &str, weight| AveragedPart { folder: folder.into(), weight };
    let parts = vec![part(PARTS[0], 1.0 - weight), part(PARTS[1], weight)];
    AveragedOptions { version: AveragedOptions::VERSION, parts, thresholds }.save(model)?;
    Ok(judged)
}
