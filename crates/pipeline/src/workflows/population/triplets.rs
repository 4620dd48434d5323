//! Models that generate facts as text: options and training.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use candle_core::DType;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Diagnostic, Document};
use sporran_extractor::{
    Document as Text,
    relations::{Annotated, Outcomes, Properties, Property, Reach, Thresholds, annotated},
    triplets::{MARKS, TRIPLETS, TripletOptions, TripletReader, outcomes, triplet_examples, writable},
};
use sporran_kilt::{jsonl, knowledgenet, observe::Observer, scores::Measure};
use sporran_training::{
    EvaluationError, Row, Seq2SeqObjective, TrainingOptions, Variables,
    session::{Evaluate, InitialModel, ShapeOptions, TrainableModel, TrainingSession},
};
use sporran_transformers::{Precision, Seq2Seq};

use super::{
    options::{AnnotationsOptions, PopulationOptions, Purpose},
    populate::text,
    recall::MaximumRecall,
};
use crate::{Error, Result};

/// `[relations.seq2seq]`: an encoder-decoder that generates the facts of a sentence (REBEL; Huguet Cabot and
/// Navigli 2021), constrained to spans of the sentence and known relations. Training saves the keys below in
/// the model's folder. For other folders, such as released checkpoints, `sporran run` uses these keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TripletTraining {
    /// The folder of the initial BART or T5, whose tokenizer has the tokens `<triplet>`, `<subj>` and
    /// `<obj>`. Without it, training starts from a T5 with random weights.
    pub from: Option<PathBuf>,
    /// `[relations.seq2seq.shape]`: the sizes of a model with random weights. Its vocabulary is trained on
    /// the annotated documents.
    pub shape: ShapeOptions,
    /// The largest number of tokens of a sentence. Longer sentences are truncated.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// The largest number of tokens to generate for a sentence, including the end token.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_written: usize,
    /// The number of beams. A fact's confidence is the share of the beams' probability that contains it.
    #[schemars(range(min = 1))]
    pub beams: usize,
    /// `[[relations.seq2seq.properties]]`: the names of properties in the generated text. Training takes its
    /// properties from the annotations. The default name of a property is in lower case, such as
    /// `place of birth` for `PLACE_OF_BIRTH`.
    pub properties: Vec<WrittenProperty>,
    /// `[relations.seq2seq.optimizer]`: epochs, batches, learning rate.
    pub optimizer: TrainingOptions,
}

/// `[[relations.seq2seq.properties]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WrittenProperty {
    /// The name of the property, such as `PLACE_OF_BIRTH`.
    pub name: String,
    /// The id of the property in KnowledgeNet's files. The default is its name. Training uses the id of the annotations.
    pub id: Option<String>,
    /// Whether the property is symmetric, such as spouses. Training takes this from the annotations.
    #[serde(default)]
    pub symmetric: bool,
    /// The relation names of the property in generated text. Training uses the first.
    pub relations: Vec<String>,
}

impl Default for TripletTraining {
    fn default() -> Self {
        Self {
            from: None,
            shape: ShapeOptions::default(),
            max_tokens: 256,
            max_written: 128,
            beams: 4,
            properties: Vec::new(),
            optimizer: TrainingOptions::default(),
        }
    }
}

impl TripletTraining {
    pub(super) fn check(&self, purpose: Purpose, document: &mut Document<'_>) {
        let key = |name: &str| format!("relations.seq2seq.{name}");
        if let Some(from) = self.from.as_ref().filter(|_| purpose != Purpose::Populate) {
            document.check_checkpoint(&key("from"), from);
        }
        let shape = &self.shape;
        for (name, value, least) in [
            ("max-tokens", self.max_tokens, 4),
            ("max-written", self.max_written, 8),
            ("beams", self.beams, 1),
            ("shape.d-model", shape.d_model, 1),
            ("shape.d-ff", shape.d_ff, 1),
            ("shape.d-kv", shape.d_kv, 1),
            ("shape.heads", shape.heads, 2),
            ("shape.encoder-layers", shape.encoder_layers, 1),
            ("shape.decoder-layers", shape.decoder_layers, 1),
        ] {
            if value < least {
                document.report_key(&key(name), format!("expected at least {least}, found {value}"));
            }
        }
        for (at, property) in self.properties.iter().enumerate() {
            if property.relations.iter().all(|relation| relation.trim().is_empty()) {
                let message = format!("expected at least one of `relations` for `{}`", property.name);
                document.report_key(&key("properties"), message);
            }
            if self.properties[..at].iter().any(|other| other.name == property.name) {
                document.report_key(&key("properties"), format!("found `{}` twice", property.name));
            }
        }
        if let Err(error) = self.optimizer.check() {
            document.report_key(&key("optimizer"), error.to_string());
        }
    }

    /// The options of a folder without a file of them; `None` if the config has no property.
    pub(super) fn of_config(&self) -> Option<TripletOptions> {
        let property = |written: &WrittenProperty| Property {
            id: written.id.clone().unwrap_or_else(|| written.name.clone()),
            name: written.name.clone(),
            symmetric: written.symmetric,
        };
        let properties = Properties::new(self.properties.iter().map(property).collect());
        (!properties.is_empty()).then(|| self.of_properties(properties))
    }

    fn of_properties(&self, properties: Properties) -> TripletOptions {
        let relations = |property: &Property| {
            let written = self.properties.iter().find(|written| written.name == property.name);
            match written {
                Some(written) => written.relations.clone(),
                None => vec![property.name.to_lowercase().replace('_', " ")],
            }
        };
        TripletOptions {
            version: TripletOptions::VERSION,
            relations: properties.all().iter().map(relations).collect(),
            thresholds: Thresholds::even(properties.len(), 0.5),
            properties,
            max_tokens: self.max_tokens,
            max_written: self.max_written,
            beams: self.beams,
        }
    }
}

/// A document with its annotation.
struct AnnotatedSource<'a> {
    source: &'a knowledgenet::Document,
    annotated: Annotated,
}

/// Trains a model that generates facts, and tunes its thresholds. Returns the number of steps, and on the
/// validation documents the share of facts that can be generated and the F1.
pub(super) fn train(
    options: &PopulationOptions,
    training: &TripletTraining,
    (annotations, model): (&AnnotationsOptions, &Path),
    (sources, properties): (&[knowledgenet::Document], &Properties),
    observe: &mut Observer<'_>,
) -> Result<(u64, MaximumRecall, Measure)> {
    let unknown = training.properties.iter().find(|written| properties.named(&written.name).is_none());
    if let Some(unknown) = unknown {
        let message = format!("expected properties of the annotations, found `{}`", unknown.name);
        return Err(Error::Config(vec![Diagnostic::of_config("relations.seq2seq.properties", message)]));
    }
    let every = annotations.validation_every;
    let (mut training_documents, mut validation, mut reach) = (Vec::new(), Vec::new(), Reach::default());
    for (at, source) in sources.iter().enumerate() {
        let document = Text::new(source.id.to_string(), source.text.clone());
        let annotated = annotated(source, properties, document, Vec::new())?;
        let document = AnnotatedSource { source, annotated };
        if at % every == every - 1 {
            let (written, facts) = writable(&document.annotated);
            reach.text += written;
            reach.facts += facts;
            validation.push(document);
        } else {
            training_documents.push(document);
        }
    }
    tracing::info!(training = training_documents.len(), validation = validation.len(), "documents");
    let maximum_recall = MaximumRecall::reported(reach, validation.len(), observe);
    let device = options.relations.device;
    let written = training.of_properties(properties.clone());
    let start = match &training.from {
        Some(from) => InitialModel::of_folder(from, options.seed)?,
        None => {
            InitialModel::fresh(&training.shape, &texts(&training_documents, &written), &MARKS, options.seed)?
        }
    };
    let card = |variables: &Variables| {
        format!(
            "role = \"extractor\"\nparameters = {}\nsource = \"sporran {} train, config {}, seed {}\"\n",
            variables.parameter_count(),
            env!("CARGO_PKG_VERSION"),
            options.name,
            options.seed
        )
    };
    let TrainableModel { model: trainable, tokenizer, variables, mut extra_files } =
        start.build(&device.open()?, card)?;
    extra_files.push((TRIPLETS.to_owned(), written.bytes()));
    let named = training.from.as_deref().unwrap_or(model);
    let generator: Arc<dyn Seq2Seq> = trainable.clone();
    let reader = TripletReader::new(generator, tokenizer, written, named)?;
    let rows: Vec<Vec<Row>> = training_documents
        .par_iter()
        .map(|document| triplet_examples(document.source, &document.annotated, &reader))
        .collect::<Result<_, _>>()?;
    let rows: Arc<Vec<Row>> = Arc::new(rows.into_iter().flatten().collect());
    let of_epoch = |_| Ok(rows.clone());
    let evaluate = || -> Result<f64, EvaluationError> { Ok(evaluate_reader(&reader, &validation)?.1) };
    let session = TrainingSession {
        variables: &variables,
        options: &training.optimizer,
        folder: options.folder().join("training"),
        model,
        dtype: DType::F32,
        extra_files: &extra_files,
        score: "F1",
    };
    let objective = Seq2SeqObjective::new(trainable.as_ref(), &variables, &training.optimizer, &of_epoch);
    let trained =
        session.run(&objective, (!validation.is_empty()).then_some(&evaluate as Evaluate<'_>), observe)?;
    let reader = TripletReader::load(model, None, device, Precision::F32)?;
    let (thresholds, f1) = evaluate_reader(&reader, &validation)?;
    let written = TripletOptions { thresholds, ..reader.options().clone() };
    jsonl::write(model.join(TRIPLETS), &written.bytes())?;
    Ok((trained.steps, maximum_recall, if validation.is_empty() { Measure::default() } else { f1.into() }))
}

/// The texts for training a vocabulary: the sentences, and the relation name of each fact.
fn texts(training_documents: &[AnnotatedSource<'_>], written: &TripletOptions) -> Vec<String> {
    let sentences = training_documents.iter().flat_map(
        |AnnotatedSource { annotated: Annotated { document, .. }, .. }| {
            document.sentences.iter().map(|sentence| text(document, sentence.span))
        },
    );
    let facts = training_documents.iter().flat_map(|document| &document.annotated.facts);
    sentences.chain(facts.map(|fact| written.relations[fact.label][0].clone())).collect()
}

/// Thresholds that are tuned on the validation documents, and their micro F1.
fn evaluate_reader(reader: &TripletReader, validation: &[AnnotatedSource<'_>]) -> Result<(Thresholds, f64)> {
    let documents: Vec<&Text> = validation.iter().map(|document| &document.annotated.document).collect();
    let properties = &reader.options().properties;
    let mut all = vec![Outcomes::default(); properties.len()];
    for (document, read) in validation.iter().zip(reader.read(&documents)?) {
        outcomes(document.source, properties, &read, &mut all);
    }
    let thresholds = Thresholds::fitted(&all);
    let counts = all.iter().zip(thresholds.all()).map(|(outcomes, threshold)| outcomes.counts(*threshold));
    let f1 = counts.sum::<sporran_extractor::relations::ThresholdCounts>().f1();
    Ok((thresholds, f1))
}
