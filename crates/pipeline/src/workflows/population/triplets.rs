//! Models that write facts as text: what a config says of them, and their training.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use candle_core::DType;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_extractor::{
    Document as Text,
    relations::{Annotated, Outcomes, Properties, Property, Reach, Thresholds, annotated},
    triplets::{MARKS, TRIPLETS, TripletOptions, TripletReader, outcomes, triplet_examples, writable},
};
use sporran_kilt::{jsonl, knowledgenet, scores::Measure};
use sporran_training::{EvaluationError, Row, Seq2SeqObjective, TrainingOptions, Variables};
use sporran_transformers::{Precision, Seq2Seq};

use super::{
    options::{AnnotationsOptions, PopulationOptions, Purpose},
    populate::text,
    recall::MaximumRecall,
};
use crate::{
    Error, Result,
    observe::Observer,
    training::{
        model::{Pupil, Start},
        options::ShapeOptions,
        session::{Judge, Learning},
    },
};
use sporran_config::{Diagnostic, Document};

/// `[relations.seq2seq]`: an encoder-decoder that reads a sentence and writes its facts (REBEL; Huguet Cabot and Navigli
/// 2021), held to spans of the sentence and to known relations. Training writes the sizes below into the model's folder;
/// of a folder that training has not written, such as a released checkpoint's, they are read here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TripletTraining {
    /// The folder of a BART or T5 to go on from, whose tokenizer has the tokens `<triplet>`, `<subj>` and `<obj>`; without it
    /// a T5 of the shape of `[relations.seq2seq.shape]` starts from random weights.
    pub from: Option<PathBuf>,
    /// `[relations.seq2seq.shape]`: the size of a model that starts from random weights; its vocabulary is learned from the
    /// annotated documents.
    pub shape: ShapeOptions,
    /// Tokens of a sentence, at most; the rest is not read.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// Tokens that are written of a sentence, its end included, at most.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_written: usize,
    /// Sequences that are followed for a sentence; a fact's confidence is the share of their probability that has it.
    #[schemars(range(min = 1))]
    pub beams: usize,
    /// `[[relations.seq2seq.properties]]`: what properties are called in what is written. Training knows its properties from
    /// the annotations, and of one that is not named here it writes the name in small letters, as `place of birth` for
    /// `PLACE_OF_BIRTH`.
    pub properties: Vec<WrittenProperty>,
    /// `[relations.seq2seq.optimizer]`: passes, batches, learning rate.
    pub optimizer: TrainingOptions,
}

/// `[[relations.seq2seq.properties]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WrittenProperty {
    /// Its name, such as `PLACE_OF_BIRTH`.
    pub name: String,
    /// Its number in KnowledgeNet's files; its name where there is none. Training takes that of the annotations.
    pub id: Option<String>,
    /// Whether a fact holds the other way round as well, as of spouses. Training takes that from the annotations.
    #[serde(default)]
    pub symmetric: bool,
    /// The relations that mean it; training writes the first.
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

    /// What a folder that has no file of its own for it writes; none where the config names no property.
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

/// A document with what is annotated of it.
struct Lesson<'a> {
    source: &'a knowledgenet::Document,
    annotated: Annotated,
}

/// Trains a model that writes facts; documents that are left out judge it and decide on thresholds. Gives the steps, the share
/// of the judges' facts that can be written, and F1 on the judges.
pub(super) fn train(
    options: &PopulationOptions,
    training: &TripletTraining,
    (annotations, model): (&AnnotationsOptions, &Path),
    (sources, properties): (&[knowledgenet::Document], &Properties),
    observe: &mut Observer<'_>,
) -> Result<(u64, MaximumRecall, Measure)> {
    let unknown = training.properties.iter().find(|written| properties.named(&written.name).is_none());
    if let Some(unknown) = unknown {
        let message =
            format!("expected properties that documents are annotated for, found `{}`", unknown.name);
        return Err(Error::Config(vec![Diagnostic::of_config("relations.seq2seq.properties", message)]));
    }
    let every = annotations.judge_every;
    let (mut learned, mut judges, mut reach) = (Vec::new(), Vec::new(), Reach::default());
    for (at, source) in sources.iter().enumerate() {
        let document = Text::new(source.id.to_string(), source.text.clone());
        let annotated = annotated(source, properties, document, Vec::new())?;
        let lesson = Lesson { source, annotated };
        if at % every == every - 1 {
            let (written, facts) = writable(&lesson.annotated);
            reach.text += written;
            reach.facts += facts;
            judges.push(lesson);
        } else {
            learned.push(lesson);
        }
    }
    tracing::info!(learned = learned.len(), judges = judges.len(), "documents");
    let maximum_recall = MaximumRecall::told(reach, judges.len(), observe);
    let device = options.relations.device;
    let written = training.of_properties(properties.clone());
    let start = match &training.from {
        Some(from) => Start::of_folder(from, options.seed)?,
        None => Start::fresh(&training.shape, &texts(&learned, &written), &MARKS, options.seed)?,
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
    let Pupil { model: pupil, tokenizer, variables, mut companions } = start.pupil(&device.open()?, card)?;
    companions.push((TRIPLETS.to_owned(), written.bytes()));
    let named = training.from.as_deref().unwrap_or(model);
    let judge: Arc<dyn Seq2Seq> = pupil.clone();
    let reader = TripletReader::new(judge, tokenizer, written, named)?;
    let rows: Vec<Vec<Row>> = learned
        .par_iter()
        .map(|lesson| triplet_examples(lesson.source, &lesson.annotated, &reader))
        .collect::<Result<_, _>>()?;
    let rows: Arc<Vec<Row>> = Arc::new(rows.into_iter().flatten().collect());
    let of_epoch = |_| Ok(rows.clone());
    let evaluate = || -> Result<f64, EvaluationError> { Ok(judged(&reader, &judges)?.1) };
    let learning = Learning {
        variables: &variables,
        options: &training.optimizer,
        folder: options.folder().join("training"),
        model,
        dtype: DType::F32,
        companions: &companions,
        score: "F1",
    };
    let objective = Seq2SeqObjective::new(pupil.as_ref(), &variables, &training.optimizer, &of_epoch);
    let trained =
        learning.run(&objective, (!judges.is_empty()).then_some(&evaluate as Judge<'_>), observe)?;
    let reader = TripletReader::load(model, None, device, Precision::F32)?;
    let (thresholds, f1) = judged(&reader, &judges)?;
    let written = TripletOptions { thresholds, ..reader.options().clone() };
    jsonl::write(model.join(TRIPLETS), &written.bytes())?;
    Ok((trained.steps, maximum_recall, if judges.is_empty() { Measure::default() } else { f1.into() }))
}

/// What a vocabulary is learned from: the sentences, and for each fact the name of its relation.
fn texts(learned: &[Lesson<'_>], written: &TripletOptions) -> Vec<String> {
    let sentences = learned.iter().flat_map(|Lesson { annotated: Annotated { document, .. }, .. }| {
        document.sentences.iter().map(|sentence| text(document, sentence.span))
    });
    let facts = learned.iter().flat_map(|lesson| &lesson.annotated.facts);
    sentences.chain(facts.map(|fact| written.relations[fact.label][0].clone())).collect()
}

/// Thresholds that are tuned on the judges, and micro F1 with them.
fn judged(reader: &TripletReader, judges: &[Lesson<'_>]) -> Result<(Thresholds, f64)> {
    let documents: Vec<&Text> = judges.iter().map(|judge| &judge.annotated.document).collect();
    let properties = &reader.options().properties;
    let mut all = vec![Outcomes::default(); properties.len()];
    for (judge, read) in judges.iter().zip(reader.read(&documents)?) {
        outcomes(judge.source, properties, &read, &mut all);
    }
    let thresholds = Thresholds::fitted(&all);
    let judged = all.iter().zip(thresholds.all()).map(|(outcomes, threshold)| outcomes.counts(*threshold));
    let f1 = judged.sum::<sporran_extractor::relations::ThresholdCounts>().f1();
    Ok((thresholds, f1))
}
