//! Training of models that generate facts.

use std::{path::Path, sync::Arc};

use candle_core::DType;
use rayon::prelude::*;
use sporran_kilt::{jsonl, knowledgenet, observe::Observer, scores::Measure};
use sporran_training::{
    EvaluationError, Row, Seq2SeqObjective, Variables,
    session::{Evaluate, InitialModel, TrainableModel, TrainingSession, model_card},
};
use sporran_transformers::{DeviceName, Precision, Seq2Seq};

use super::{
    MARKS, TRIPLETS, TripletOptions, TripletReader, TripletTraining, linear::line, outcomes,
    triplet_examples, writable,
};
use crate::{
    Document, Result,
    relations::{
        Annotated, MaximumRecall, Outcomes, Properties, Reach, ThresholdCounts, Thresholds,
        TrainedRelationModel, annotated,
    },
};

/// The inputs and outputs of a training.
#[derive(Clone, Copy)]
pub struct TripletData<'a> {
    /// The name of the run, for the model's `model.toml`.
    pub name: &'a str,
    /// The possible properties.
    pub properties: &'a Properties,
    /// The training documents.
    pub documents: &'a [&'a knowledgenet::Document],
    /// The validation documents, for thresholds and scores.
    pub validation: &'a [&'a knowledgenet::Document],
    /// The device.
    pub device: DeviceName,
    /// The seed of all random choices.
    pub seed: u64,
    /// The folder of the checkpoints.
    pub checkpoints: &'a Path,
    /// The folder of the trained model.
    pub model: &'a Path,
}

/// A document with its annotation.
struct AnnotatedSource<'a> {
    source: &'a knowledgenet::Document,
    annotated: Annotated,
}

impl TripletTraining {
    /// Trains a model, tunes its thresholds on the validation documents, and saves it. A stopped training resumes
    /// from its newest checkpoint.
    ///
    /// The maximum recall is the share of facts that can be generated.
    ///
    /// # Errors
    /// Errors of the documents' annotations, of the initial model or of the training.
    pub fn train(&self, data: &TripletData<'_>, observe: &mut Observer<'_>) -> Result<TrainedRelationModel> {
        let TripletData { name, properties, device, seed, checkpoints, model, .. } = *data;
        let documents = with_annotations(data.documents, properties)?;
        let validation = with_annotations(data.validation, properties)?;
        let mut reach = Reach::default();
        for document in &validation {
            let (written, facts) = writable(&document.annotated);
            reach.text += written;
            reach.facts += facts;
        }
        tracing::info!(training = documents.len(), validation = validation.len(), "documents");
        let maximum_recall = MaximumRecall::reported(reach, validation.len(), observe);
        let written = self.of_properties(properties.clone());
        let start = match &self.from {
            Some(from) => InitialModel::of_folder(from, seed)?,
            None => InitialModel::fresh(&self.shape, &texts(&documents, &written), &MARKS, seed)?,
        };
        let card = |variables: &Variables| model_card("extractor", variables, name, seed);
        let TrainableModel { model: trainable, tokenizer, variables, mut extra_files } =
            start.build(&device.open()?, card)?;
        extra_files.push((TRIPLETS.to_owned(), written.bytes()));
        let named = self.from.as_deref().unwrap_or(model);
        let generator: Arc<dyn Seq2Seq> = trainable.clone();
        let reader = TripletReader::new(generator, tokenizer, written, named)?;
        let rows: Vec<Vec<Row>> = documents
            .par_iter()
            .map(|document| triplet_examples(document.source, &document.annotated, &reader))
            .collect::<Result<_, _>>()?;
        let rows: Arc<Vec<Row>> = Arc::new(rows.into_iter().flatten().collect());
        let of_epoch = |_| Ok(rows.clone());
        let evaluate = || -> Result<f64, EvaluationError> { Ok(evaluate_reader(&reader, &validation)?.1) };
        let session = TrainingSession {
            variables: &variables,
            options: &self.optimizer,
            folder: checkpoints.to_path_buf(),
            model,
            dtype: DType::F32,
            extra_files: &extra_files,
            score: "F1",
        };
        let objective = Seq2SeqObjective::new(trainable.as_ref(), &variables, &self.optimizer, &of_epoch);
        let trained = session.run(
            &objective,
            (!validation.is_empty()).then_some(&evaluate as Evaluate<'_>),
            observe,
        )?;
        let reader = TripletReader::load(model, None, device, Precision::F32)?;
        let (thresholds, f1) = evaluate_reader(&reader, &validation)?;
        let written = TripletOptions { thresholds, ..reader.options().clone() };
        jsonl::write(model.join(TRIPLETS), &written.bytes())?;
        let validation_f1 = if validation.is_empty() { Measure::default() } else { f1.into() };
        Ok(TrainedRelationModel { steps: trained.steps, maximum_recall, validation_f1 })
    }
}

/// Documents with their annotations. There are no mentions.
fn with_annotations<'a>(
    sources: &[&'a knowledgenet::Document],
    properties: &Properties,
) -> Result<Vec<AnnotatedSource<'a>>> {
    let join = |source: &'a knowledgenet::Document| -> Result<AnnotatedSource<'a>> {
        let document = Document::new(source.id.to_string(), source.text.clone());
        Ok(AnnotatedSource { source, annotated: annotated(source, properties, document, Vec::new())? })
    };
    sources.iter().copied().map(join).collect()
}

/// The texts for training a vocabulary: the sentences, and the relation name of each fact.
fn texts(documents: &[AnnotatedSource<'_>], written: &TripletOptions) -> Vec<String> {
    let sentences =
        documents.iter().flat_map(|AnnotatedSource { annotated: Annotated { document, .. }, .. }| {
            document.sentences.iter().map(|sentence| line(document, sentence.span))
        });
    let facts = documents.iter().flat_map(|document| &document.annotated.facts);
    sentences.chain(facts.map(|fact| written.relations[fact.label][0].clone())).collect()
}

/// Thresholds that are tuned on the validation documents, and their micro F1.
fn evaluate_reader(reader: &TripletReader, validation: &[AnnotatedSource<'_>]) -> Result<(Thresholds, f64)> {
    let documents: Vec<&Document> = validation.iter().map(|document| &document.annotated.document).collect();
    let properties = &reader.options().properties;
    let mut all = vec![Outcomes::default(); properties.len()];
    for (document, read) in validation.iter().zip(reader.read(&documents)?) {
        outcomes(document.source, properties, &read, &mut all);
    }
    let thresholds = Thresholds::fitted(&all);
    let counts = all.iter().zip(thresholds.all()).map(|(outcomes, threshold)| outcomes.counts(*threshold));
    let f1 = counts.sum::<ThresholdCounts>().f1();
    Ok((thresholds, f1))
}
