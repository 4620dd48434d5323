//! Distillation: training on the probabilities of a teacher for unannotated text (Hinton et al., 2015).

use std::{collections::HashMap, fs, path::Path};

use candle_core::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};
use sporran_config::Diagnostic;
use sporran_extractor::{
    Document,
    relations::{Annotated, Properties, Property, RelationModel, Scores, open, sentences},
};
use sporran_kilt::{
    jsonl,
    observe::{Event, Observer, Unit, advance, begin},
};
use sporran_training::PairTarget;

use super::{
    options::{PopulationOptions, TeacherOptions},
    parts::mentions,
    sources::each_portion,
    train::classifier_inputs,
};
use crate::{
    Error, Result,
    run_dir::{inputs::Inputs, key::StepKey},
};

/// All sentences with at least this probability for some pair and property are used.
const LIKELY: f32 = 0.05;
/// Every n-th of the other sentences is used.
const UNLIKELY: usize = 8;

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

/// Options that do not change the probabilities: output folders, and options that are used after the teacher.
const WITHOUT: [&str; 15] = [
    "name",
    "seed",
    "output",
    "annotations",
    "relations.model",
    "relations.precision",
    "relations.linear",
    "relations.training",
    "relations.bilstm",
    "relations.seq2seq",
    "teacher.weight",
    "teacher.readings",
    "mentions.types",
    "coreference",
    "linker",
];

/// The key of a teacher's probabilities.
fn readings_key(options: &impl Serialize) -> Result<StepKey> {
    let key = StepKey::new("read with a teacher", options)?;
    Ok(key.without(&WITHOUT).without(&["input", "triples"]))
}

/// The documents of the teacher's input with its probabilities as labels.
///
/// # Errors
/// Errors of its model and its input; [`Error::Config`] if it lacks a property of the annotations.
pub(super) fn labelled_documents(
    options: &PopulationOptions,
    teacher: &TeacherOptions,
    properties: &Properties,
    observe: &mut Observer<'_>,
) -> Result<Vec<Annotated>> {
    let mut inputs = Inputs::default();
    let made_from = readings_key(options)?.read(&mut inputs)?.digest();
    let model = open(&teacher.model, options.relations.device, teacher.precision)?;
    let labels = teacher_labels(model.as_ref(), properties)?;
    let mut documents = documents(options, teacher)?;
    inputs.verify()?;
    let folder = teacher.readings.clone().unwrap_or_else(|| options.folder().join("readings"));
    let readings = Readings { version: 2, made_from };
    let values = match cached(&folder, &readings)? {
        Some(values) => values,
        None => save(&folder, &readings, &read(model.as_ref(), teacher, &documents, observe)?)?,
    };
    let mut rest = values.as_slice();
    let (all, mut passed) = (model.properties().len(), 0);
    for annotated in &mut documents {
        for (candidates, targets) in annotated.candidates.iter().zip(&mut annotated.targets) {
            let (own, later) = rest.split_at((candidates.pairs.len() * all).min(rest.len()));
            rest = later;
            let scores = Scores::new(all, own.to_vec()).joint(&candidates.pairs, model.properties());
            *targets = targets_of(&scores, candidates.pairs.len(), (&labels, teacher.weight), &mut passed);
        }
    }
    documents.retain(|annotated| annotated.targets.iter().any(|targets| !targets.is_empty()));
    let sentences: usize = documents
        .iter()
        .map(|annotated| annotated.targets.iter().filter(|targets| !targets.is_empty()).count())
        .sum();
    tracing::info!(documents = documents.len(), sentences, "documents labelled by the teacher");
    Ok(documents)
}

/// The unlabelled documents of the teacher's input, with their candidates.
fn documents(options: &PopulationOptions, teacher: &TeacherOptions) -> Result<Vec<Annotated>> {
    let finder = mentions(&options.mentions)?;
    let (mut all, mut number) = (Vec::new(), 0);
    for path in &teacher.input.files {
        each_portion(path, teacher.input.format, &teacher.input.folds, |portion| {
            let mut documents: Vec<Document> = Vec::with_capacity(portion.len());
            for source in portion {
                if number % teacher.every == 0 {
                    documents.push(source.document);
                }
                number += 1;
            }
            let mentions = finder.mentions(&documents)?;
            for (document, mentions) in documents.into_iter().zip(mentions) {
                let candidates = sentences(&mentions);
                let (targets, facts) = (vec![Vec::new(); candidates.len()], Vec::new());
                all.push(Annotated { document, mentions, candidates, targets, facts });
            }
            Ok(())
        })?;
    }
    Ok(all)
}

/// The number of documents in a batch of the teacher.
const PORTION: usize = 64;

/// The probabilities of the teacher, in the order of documents, pairs and properties.
fn read(
    model: &dyn RelationModel,
    teacher: &TeacherOptions,
    documents: &[Annotated],
    observe: &mut Observer<'_>,
) -> Result<Vec<f32>> {
    let step = format!("read with {}", teacher.model.display());
    begin(observe, step, documents.len() as u64, Unit::Records);
    let (mut values, mut done) = (Vec::new(), 0);
    for portion in documents.chunks(PORTION) {
        let inputs: Vec<_> = portion.iter().flat_map(classifier_inputs).collect();
        for ((.., candidates), scores) in inputs.iter().zip(model.score(&inputs)?) {
            for pair in 0..candidates.pairs.len() {
                values.extend((0..model.properties().len()).map(|label| scores.of(pair, label)));
            }
        }
        done += portion.len();
        advance(observe, done as u64);
    }
    observe(Event::End);
    Ok(values)
}

/// The targets of a sentence's pairs. `labels` are the teacher's indices of the properties.
fn targets_of(
    scores: &Scores,
    pairs: usize,
    (labels, weight): (&[usize], f32),
    passed: &mut usize,
) -> Vec<PairTarget> {
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

/// The teacher's indices of the properties.
fn teacher_labels(model: &dyn RelationModel, properties: &Properties) -> Result<Vec<usize>> {
    let find = |property: &Property| {
        model.properties().position(&property.id).ok_or_else(|| {
            let message = format!("expected a model with the property {} ({})", property.name, property.id);
            Error::Config(vec![Diagnostic::of_config("teacher.model", message)])
        })
    };
    properties.all().iter().map(find).collect()
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
    fs::create_dir_all(folder).map_err(Error::io(folder, "create"))?;
    let path = folder.join(READINGS);
    if path.is_file() {
        fs::remove_file(&path).map_err(Error::io(&path, "remove"))?;
    }
    let write = || -> candle_core::Result<Vec<f32>> {
        let values = Tensor::from_slice(values, values.len(), &Device::Cpu)?.to_dtype(DType::F16)?;
        let rounded = values.to_dtype(DType::F32)?.to_vec1()?;
        candle_core::safetensors::save(&HashMap::from([(TENSOR, values)]), folder.join(PROBABILITIES))?;
        Ok(rounded)
    };
    let rounded = write().map_err(sporran_checkpoint::Error::from)?;
    let json = serde_json::to_vec(readings).map_err(|error| Error::io(&path, "write")(error.into()))?;
    jsonl::write(&path, &json)?;
    Ok(rounded)
}
