//! Training of the relation classifiers of knowledge-base population.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sporran_config::Diagnostic;
use sporran_extractor::{
    AliasTable, Document, Parses,
    relations::{Annotated, MaximumRecall, PairData, Properties, TrainedRelationModel, annotated},
    triplets::{TripletData, TripletTraining},
};
use sporran_kilt::{StagedFolder, counted, jsonl, knowledgenet, observe::Observer, scores::Measure};

use super::{
    background::background,
    options::{AnnotationsOptions, PopulationOptions},
    populate::parent,
    teacher::labelled_documents,
};
use crate::{
    Error, Result,
    run_dir::{manifest::TrainingEntry, training::TrainingFolder},
    workflows::folds::documents_of,
};

/// The file of the maximum recall in a model's folder.
const MAXIMUM_RECALL: &str = "maximum-recall.json";

/// The maximum recall of the candidates of a trained model; none for a model of an earlier version, or of another program.
pub(crate) fn maximum_recall(model: &Path) -> Result<Option<MaximumRecall>> {
    let path = model.join(MAXIMUM_RECALL);
    Ok(path.exists().then(|| jsonl::read_json(&path)).transpose()?)
}

/// The result of a training.
#[derive(Clone, Debug, Serialize)]
pub struct TrainedRelations {
    /// The model's folder.
    pub model: PathBuf,
    /// The number of optimizer steps.
    pub steps: u64,
    /// The maximum recall on the validation documents.
    #[serde(flatten)]
    pub maximum_recall: MaximumRecall,
    /// The micro F1 of facts on the validation documents, with thresholds tuned on them; none without such documents.
    #[serde(rename = "judged")]
    pub validation_f1: Measure,
    /// The number of names in the linker's table; 0 without a linker.
    pub names: usize,
}

impl fmt::Display for TrainedRelations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recall = &self.maximum_recall;
        write!(
            f,
            "{}\nvalidation documents: maximum recall {:.3} by text, {:.3} by link; F1 {:.1}",
            counted(self.steps, "step"),
            recall.text,
            recall.link,
            self.validation_f1.percent()
        )
    }
}

/// Trains `[relations]`. A stopped training resumes from its newest checkpoint.
///
/// # Errors
/// [`Error::Config`] without `[annotations]` or a table of a model; errors of files, models or training.
pub fn train(options: &PopulationOptions, observe: &mut Observer<'_>) -> Result<TrainedRelations> {
    let annotations = options.annotations.as_ref().ok_or_else(|| missing("annotations"))?;
    let mut underway =
        TrainingFolder::begin(options.folder(), options, &WITHOUT)?.writing(&options.relations.model);
    let trained = learn(options, annotations, &mut underway, observe)?;
    underway.finish(TrainingEntry { steps: trained.steps, best: trained.validation_f1.value() })?;
    Ok(trained)
}

/// Options that do not change the training: output folders, and options of `sporran run`.
const WITHOUT: [&str; 6] =
    ["relations.model", "relations.precision", "linker.aliases", "teacher.readings", "input", "triples"];

fn missing(key: &str) -> Error {
    Error::Config(vec![Diagnostic::of_config(key, "is missing; training needs it")])
}

/// Trains the model and saves it.
fn learn(
    options: &PopulationOptions,
    annotations: &AnnotationsOptions,
    underway: &mut TrainingFolder,
    observe: &mut Observer<'_>,
) -> Result<TrainedRelations> {
    let sources = load(annotations)?;
    let properties = Properties::of(&sources);
    let linked = || sources.iter().filter(|source| !annotations.is_apart(source.fold));
    let table =
        options.linker.as_ref().map(|linker| AliasTable::build(linked(), &linker.names)).transpose()?;
    underway.verify()?;
    let staged = StagedFolder::create(&options.relations.model)?;
    let model: &Path = &staged.path();
    let names = match (&options.linker, table) {
        (Some(linker), Some(table)) => {
            parent(&linker.aliases)?;
            table.save(&linker.aliases)?;
            table.len()
        }
        _ => 0,
    };
    let trained = match &options.relations.seq2seq {
        Some(seq2seq) => {
            learn_triplets(options, seq2seq, (annotations, model), (&sources, &properties), observe)?
        }
        None => learn_pairs(options, annotations, model, (&sources, &properties), observe)?,
    };
    let TrainedRelationModel { steps, maximum_recall, validation_f1 } = trained;
    jsonl::write_json(model.join(MAXIMUM_RECALL), &maximum_recall)?;
    staged.commit()?;
    let model = options.relations.model.clone();
    Ok(TrainedRelations { model, steps, maximum_recall, validation_f1, names })
}

/// Trains a model that generates facts.
fn learn_triplets(
    options: &PopulationOptions,
    seq2seq: &TripletTraining,
    (annotations, model): (&AnnotationsOptions, &Path),
    (sources, properties): (&[knowledgenet::Document], &Properties),
    observe: &mut Observer<'_>,
) -> Result<TrainedRelationModel> {
    let unknown = seq2seq.properties.iter().find(|written| properties.named(&written.name).is_none());
    if let Some(unknown) = unknown {
        let message = format!("expected properties of the annotations, found `{}`", unknown.name);
        return Err(Error::Config(vec![Diagnostic::of_config("relations.seq2seq.properties", message)]));
    }
    let (mut documents, mut validation) = (Vec::new(), Vec::new());
    for (at, source) in sources.iter().enumerate() {
        if annotations.is_held_out(at, source.fold) {
            validation.push(source);
        } else {
            documents.push(source);
        }
    }
    let data = TripletData {
        name: &options.name,
        properties,
        documents: &documents,
        validation: &validation,
        device: options.relations.device,
        seed: options.seed,
        checkpoints: &options.folder().join("training"),
        model,
    };
    Ok(seq2seq.train(&data, observe)?)
}

/// Trains a model that classifies pairs of mentions.
fn learn_pairs(
    options: &PopulationOptions,
    annotations: &AnnotationsOptions,
    model: &Path,
    (sources, properties): (&[knowledgenet::Document], &Properties),
    observe: &mut Observer<'_>,
) -> Result<TrainedRelationModel> {
    let relations = &options.relations;
    let mut documents = join(options, sources, properties)?;
    let links = if relations.uses_background() || options.linker.is_some() {
        background(options, annotations, sources, &mut documents)?
    } else {
        vec![None; documents.len()]
    };
    let teacher_documents = match &options.teacher {
        Some(teacher) => labelled_documents(options, teacher, properties, observe)?,
        None => Vec::new(),
    };
    let held_out = sources.iter().enumerate().map(|(at, source)| annotations.is_held_out(at, source.fold));
    let held_out: Vec<bool> = held_out.collect();
    let classifier = relations.pair_classifier().ok_or_else(|| missing("relations.training"))?;
    let data = PairData {
        properties,
        sources,
        documents,
        links: &links,
        teacher_documents,
        held_out: &held_out,
        parts: annotations.validation_every,
        title: format!("train {}", relations.model.display()),
        device: relations.device,
        seed: options.seed,
        checkpoints: &options.folder().join("training"),
        model,
    };
    Ok(classifier.train(data, observe)?)
}

/// The documents with their mentions, candidates and annotated labels.
fn join(
    options: &PopulationOptions,
    sources: &[knowledgenet::Document],
    properties: &Properties,
) -> Result<Vec<Annotated>> {
    let mut texts: Vec<Document> =
        sources.iter().map(|source| Document::new(source.id.to_string(), source.text.clone())).collect();
    if !options.parses.is_empty() {
        let parses = Parses::open(&options.parses)?;
        texts.iter_mut().try_for_each(|text| parses.attach(text))?;
    }
    let mentions = options.mentions.open()?.mentions(&texts)?;
    let each = sources.iter().zip(texts).zip(mentions);
    let join = |((source, document), mentions)| annotated(source, properties, document, mentions);
    Ok(each.map(join).collect::<Result<_, _>>()?)
}

/// The annotated documents of all files, in order.
fn load(annotations: &AnnotationsOptions) -> Result<Vec<knowledgenet::Document>> {
    let mut all = Vec::new();
    for path in &annotations.files {
        let folds = [&annotations.folds[..], &annotations.validation_folds].concat();
        all.extend(documents_of(path, &folds, "annotations.folds")?);
    }
    Ok(all)
}
