//! Distillation: training on the probabilities of a teacher for unannotated text (Hinton et al., 2015).

use serde::Serialize;
use sporran_config::Diagnostic;
use sporran_extractor::{
    Document,
    relations::{Annotated, Properties, Property, Teacher, open},
};
use sporran_kilt::observe::Observer;

use super::{
    options::{PopulationOptions, TeacherOptions},
    populate::check_input,
    sources::each_portion,
};
use crate::{
    Error, Result,
    run_dir::{inputs::Inputs, key::StepKey},
};

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
    check_input(&teacher.input)?;
    let mut inputs = Inputs::default();
    let made_from = readings_key(options)?.read(&mut inputs)?.digest();
    let model = open(&teacher.model, options.relations.device, teacher.precision)?;
    let labels = model.properties().positions(properties).map_err(missing)?;
    let mut documents = documents(options, teacher)?;
    inputs.verify()?;
    let folder = teacher.readings.clone().unwrap_or_else(|| options.folder().join("readings"));
    let step = format!("read with {}", teacher.model.display());
    let labeller = Teacher { model, labels, weight: teacher.weight };
    labeller.label(&mut documents, (&folder, made_from), step, observe)?;
    Ok(documents)
}

fn missing(property: &Property) -> Error {
    let message = format!("expected a model with the property {} ({})", property.name, property.id);
    Error::Config(vec![Diagnostic::of_config("teacher.model", message)])
}

/// The unlabelled documents of the teacher's input, with their candidates.
fn documents(options: &PopulationOptions, teacher: &TeacherOptions) -> Result<Vec<Annotated>> {
    let finder = options.mentions.open()?;
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
                all.push(Annotated::unlabelled(document, mentions));
            }
            Ok(())
        })?;
    }
    Ok(all)
}
