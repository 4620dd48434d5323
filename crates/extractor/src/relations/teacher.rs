//! Distillation: training on the probabilities of a teacher for unannotated text (Hinton et al., 2015).

use std::{collections::HashMap, fs, path::Path};

use candle_core::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};
use sporran_kilt::{
    jsonl,
    observe::{Event, Observer, Unit, advance, begin},
};
use sporran_training::PairTarget;

use super::{Annotated, RelationModel, Scores};
use crate::Result;

/// All sentences with at least this probability for some pair and property are used.
const LIKELY: f32 = 0.05;
/// Every n-th of the other sentences is used.
const UNLIKELY: usize = 8;
/// The number of documents in a batch of the teacher.
const PORTION: usize = 64;

/// The files of the cached probabilities.
const READINGS: &str = "readings.json";
const PROBABILITIES: &str = "readings.safetensors";
const TENSOR: &str = "probabilities";

/// The description of the cached probabilities.
#[derive(PartialEq, Serialize, Deserialize)]
struct Readings {
    version: u32,
    /// The hash of their inputs.
    made_from: String,
}

/// A trained model that labels documents with its probabilities.
pub struct Teacher {
    /// The model.
    pub model: Box<dyn RelationModel>,
    /// For each property to label, its index in the model's properties.
    pub labels: Vec<usize>,
    /// The weight of a pair, relative to an annotated pair.
    pub weight: f32,
}

impl Teacher {
    /// Labels documents without targets. Documents without likely pairs are removed, except for a share of
    /// them.
    ///
    /// The probabilities are cached in `folder`. `made_from` is the hash of the model and of the documents; cached
    /// probabilities with another hash are replaced. `step` is the title of the progress.
    ///
    /// # Errors
    /// Errors of the model or of the cache.
    pub fn label(
        &self,
        documents: &mut Vec<Annotated>,
        (folder, made_from): (&Path, String),
        step: String,
        observe: &mut Observer<'_>,
    ) -> Result<()> {
        let readings = Readings { version: 2, made_from };
        let values = match cached(folder, &readings)? {
            Some(values) => values,
            None => save(folder, &readings, &self.read(documents, step, observe)?)?,
        };
        let mut rest = values.as_slice();
        let (all, mut passed) = (self.model.properties().len(), 0);
        for annotated in documents.iter_mut() {
            for (candidates, targets) in annotated.candidates.iter().zip(&mut annotated.targets) {
                let (own, later) = rest.split_at((candidates.pairs.len() * all).min(rest.len()));
                rest = later;
                let scores = Scores::new(all, own.to_vec()).joint(&candidates.pairs, self.model.properties());
                *targets = self.targets(&scores, candidates.pairs.len(), &mut passed);
            }
        }
        documents.retain(|annotated| annotated.targets.iter().any(|targets| !targets.is_empty()));
        let sentences: usize = documents
            .iter()
            .map(|annotated| annotated.targets.iter().filter(|targets| !targets.is_empty()).count())
            .sum();
        tracing::info!(documents = documents.len(), sentences, "documents labelled by the teacher");
        Ok(())
    }

    /// The probabilities of the model, in the order of documents, pairs and properties.
    fn read(&self, documents: &[Annotated], step: String, observe: &mut Observer<'_>) -> Result<Vec<f32>> {
        begin(observe, step, documents.len() as u64, Unit::Records);
        let (mut values, mut done) = (Vec::new(), 0);
        for portion in documents.chunks(PORTION) {
            let inputs: Vec<_> = portion.iter().flat_map(Annotated::inputs).collect();
            for ((.., candidates), scores) in inputs.iter().zip(self.model.score(&inputs)?) {
                for pair in 0..candidates.pairs.len() {
                    values.extend((0..self.model.properties().len()).map(|label| scores.of(pair, label)));
                }
            }
            done += portion.len();
            advance(observe, done as u64);
        }
        observe(Event::End);
        Ok(values)
    }

    /// The targets of a sentence's pairs. `passed` counts the unlikely sentences so far.
    fn targets(&self, scores: &Scores, pairs: usize, passed: &mut usize) -> Vec<PairTarget> {
        let (labels, weight) = (&self.labels, self.weight);
        let likely = (0..pairs).any(|pair| labels.iter().any(|&label| scores.of(pair, label) >= LIKELY));
        *passed += usize::from(!likely);
        if !likely && !passed.is_multiple_of(UNLIKELY) {
            return Vec::new();
        }
        let target = |pair, (label, &teacher_label): (usize, &usize)| {
            let value = scores.of(pair, teacher_label);
            PairTarget { pair, label, value, weight }
        };
        (0..pairs).flat_map(|pair| labels.iter().enumerate().map(move |known| target(pair, known))).collect()
    }
}

/// The cached probabilities of a folder; `None` if they are of other inputs.
fn cached(folder: &Path, wanted: &Readings) -> Result<Option<Vec<f32>>> {
    let path = folder.join(READINGS);
    if !path.is_file() || jsonl::read_json::<Readings>(&path)? != *wanted {
        return Ok(None);
    }
    let load = || -> candle_core::Result<Option<Vec<f32>>> {
        let tensors = candle_core::safetensors::load(folder.join(PROBABILITIES), &Device::Cpu)?;
        tensors.get(TENSOR).map(|values| values.to_dtype(DType::F32)?.to_vec1()).transpose()
    };
    Ok(load().map_err(sporran_checkpoint::Error::from)?)
}

/// Saves probabilities, and then their description. Returns the rounded values of the file, so that a first
/// training and later ones have the same targets.
fn save(folder: &Path, readings: &Readings, values: &[f32]) -> Result<Vec<f32>> {
    fs::create_dir_all(folder).map_err(|source| sporran_kilt::Error::io(folder, "create", source))?;
    let path = folder.join(READINGS);
    if path.is_file() {
        fs::remove_file(&path).map_err(|source| sporran_kilt::Error::io(&path, "remove", source))?;
    }
    let write = || -> candle_core::Result<Vec<f32>> {
        let values = Tensor::from_slice(values, values.len(), &Device::Cpu)?.to_dtype(DType::F16)?;
        let rounded = values.to_dtype(DType::F32)?.to_vec1()?;
        candle_core::safetensors::save(&HashMap::from([(TENSOR, values)]), folder.join(PROBABILITIES))?;
        Ok(rounded)
    };
    let rounded = write().map_err(sporran_checkpoint::Error::from)?;
    // Structs of strings and numbers are always valid JSON.
    let json = serde_json::to_vec(readings).unwrap_or_default();
    jsonl::write(&path, &json)?;
    Ok(rounded)
}

#[cfg(test)]
mod tests {
    use super::{super::linear::tests::trained, *};

    #[test]
    fn cached_probabilities_give_the_same_targets_without_the_model() {
        let folder = tempfile::tempdir().unwrap();
        let (model, documents) = trained(12);
        let teacher = Teacher { model: Box::new(model), labels: vec![0], weight: 0.5 };
        let label = |hash: &str| {
            let unlabelled = |annotated: &Annotated| {
                Annotated::unlabelled(annotated.document.clone(), annotated.mentions.clone())
            };
            let mut found: Vec<Annotated> = documents.iter().map(unlabelled).collect();
            let mut passes = 0;
            let mut observe = |event: Event| passes += usize::from(matches!(event, Event::Begin { .. }));
            let cache = (folder.path(), hash.to_owned());
            teacher.label(&mut found, cache, "read".to_owned(), &mut observe).unwrap();
            (found, passes)
        };
        let (found, passes) = label("a");
        let targets: Vec<&PairTarget> =
            found.iter().flat_map(|found| found.targets.iter().flatten()).collect();
        assert!(!targets.is_empty() && targets.iter().all(|target| target.weight == 0.5));
        assert_eq!(passes, 1);
        assert_eq!(label("a"), (found, 0));
        assert_eq!(label("b").1, 1);
    }
}
