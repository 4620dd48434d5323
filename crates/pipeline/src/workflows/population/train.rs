//! Training of the relation classifiers of knowledge-base population.

use std::{
    borrow::Borrow,
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sporran_checkpoint::Tokenizer;
use sporran_extractor::{
    Document,
    relations::{
        Annotated, FEATURES, LinearData, LinearRelations, LinearTraining, MARKED, MarkedEntities,
        MarkedOptions, Marking, Properties, RelationInput, RelationModel, Scores, ThresholdCounts,
        Thresholds, annotated, pair_examples,
    },
};
use sporran_kilt::{
    StagedFolder, jsonl, knowledgenet,
    observe::{Event, Observer, Unit, advance, begin},
    scores::Measure,
};
use sporran_training::{
    EvaluationError, PairExample, PairObjective, TunedEncoder, Variables, VocabularyOptions,
    session::TrainingSession, tokenizer_files, train_vocabulary,
};
use sporran_transformers::{
    BertConfig, BertFamily, BertTask, Checkpoint, ModelConfig, PairHead, PairHeadConfig, Precision,
};

use super::{
    aliases::build,
    average::{PARTS, average},
    bilstm::{Links, background, train as train_bilstm},
    options::{AnnotationsOptions, PopulationOptions, RelationsTraining},
    parts::mentions,
    populate::parent,
    recall::{HeldOut, MaximumRecall, reach},
    teacher::labelled_documents,
    triplets::train as train_triplets,
};
use crate::{
    Error, Result,
    run_dir::{manifest::TrainingEntry, training::TrainingFolder},
};

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
            "{} steps\nvalidation documents: maximum recall {:.3} by text, {:.3} by link; F1 {:.1}",
            self.steps,
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
    let mut underway = TrainingFolder::begin(options.folder(), options, &WITHOUT)?;
    let staged = StagedFolder::create(&options.relations.model)?;
    let trained = learn(options, annotations, (&staged.path(), &mut underway), observe)?;
    staged.commit()?;
    underway.finish(TrainingEntry { steps: trained.steps, best: trained.validation_f1.value() })?;
    Ok(TrainedRelations { model: options.relations.model.clone(), ..trained })
}

/// Options that do not change the training: output folders, and options of `sporran run`.
const WITHOUT: [&str; 6] =
    ["relations.model", "relations.precision", "linker.aliases", "teacher.readings", "input", "triples"];

fn missing(key: &str) -> Error {
    Error::Config(vec![sporran_config::Diagnostic::of_config(key, "is missing; training needs it")])
}

/// Trains the model and saves it in the folder `model`.
fn learn(
    options: &PopulationOptions,
    annotations: &AnnotationsOptions,
    (model, underway): (&Path, &mut TrainingFolder),
    observe: &mut Observer<'_>,
) -> Result<TrainedRelations> {
    let sources = load(annotations)?;
    let properties = Properties::of(&sources);
    let table = options.linker.as_ref().map(|linker| build(&sources, &linker.names)).transpose()?;
    underway.verify()?;
    let names = match (&options.linker, table) {
        (Some(linker), Some(table)) => {
            parent(&linker.aliases)?;
            table.save(&linker.aliases)?;
            table.len()
        }
        _ => 0,
    };
    let model = model.to_owned();
    if let Some(seq2seq) = &options.relations.seq2seq {
        let annotated = (sources.as_slice(), &properties);
        let (steps, maximum_recall, validation_f1) =
            train_triplets(options, seq2seq, (annotations, &model), annotated, observe)?;
        return Ok(TrainedRelations { model, steps, maximum_recall, validation_f1, names });
    }
    let mut documents = join(options, &sources, &properties)?;
    let links = match (&options.relations.bilstm, &options.linker) {
        (None, None) => vec![None; documents.len()],
        _ => background(options, &sources, &mut documents)?,
    };
    let teacher_documents = match &options.teacher {
        Some(teacher) => labelled_documents(options, teacher, &properties, observe)?,
        None => Vec::new(),
    };
    if let (Some(linear), None) = (&options.relations.linear, &options.relations.training) {
        // Cross-validation holds each document out once.
        let maximum_recall = {
            let held_out = held_out(&sources, &documents, &links);
            let reached = reach(&held_out, &properties, |_, _, _, _| true);
            MaximumRecall::reported(reached, held_out.len(), observe)
        };
        let f1 = fit_linear(
            options,
            (linear, &model),
            annotations.validation_every,
            &properties,
            (documents, teacher_documents),
            observe,
        )?;
        let (steps, validation_f1) = (linear.epochs as u64, f1.into());
        return Ok(TrainedRelations { model, steps, maximum_recall, validation_f1, names });
    }
    let every = annotations.validation_every;
    let is_validation = |at: usize| at % every == every - 1;
    let (mut training_documents, mut validation) = (Vec::new(), Vec::new());
    for (at, document) in documents.into_iter().enumerate() {
        if is_validation(at) { validation.push(document) } else { training_documents.push(document) }
    }
    tracing::info!(training = training_documents.len(), validation = validation.len(), "annotated documents");
    training_documents.extend(teacher_documents);
    let numbers = (0..sources.len()).filter(|at| is_validation(*at));
    let held_out: Vec<HeldOut<'_>> = numbers
        .zip(&validation)
        .map(|(at, annotated)| HeldOut { source: &sources[at], annotated, links: links[at].as_deref() })
        .collect();
    let measure = |f1: f64| if validation.is_empty() { Measure::default() } else { f1.into() };
    if let Some(bilstm) = &options.relations.bilstm {
        let parts = (training_documents.as_slice(), held_out.as_slice());
        let (steps, maximum_recall, f1) =
            train_bilstm(options, (bilstm, &model), &properties, parts, observe)?;
        return Ok(TrainedRelations { model, steps, maximum_recall, validation_f1: measure(f1), names });
    }
    let training = options.relations.training.as_ref().ok_or_else(|| missing("relations.training"))?;
    let trainer = MarkedTrainer::new(options, training, &properties, &training_documents)?;
    // A linear model classifies every pair, an encoder only the pairs within its token limit.
    let read = match &options.relations.linear {
        Some(_) => Vec::new(),
        None => trainer.read(&validation)?,
    };
    let reached = reach(&held_out, &properties, |at, sentence, pair, _| {
        let pair = &validation[at].candidates[sentence].pairs[pair];
        read.get(at).is_none_or(|marks| (pair.first.max(pair.second) as usize) < marks[sentence])
    });
    let maximum_recall = MaximumRecall::reported(reached, held_out.len(), observe);
    let folder = options.folder();
    let marked = match &options.relations.linear {
        Some(_) => model.join(PARTS[1]),
        None => model.clone(),
    };
    let steps = trainer.optimise(&training_documents, &validation, (&folder, &marked), observe)?;
    let f1 = match &options.relations.linear {
        Some(linear) => {
            let data = LinearData::of(&training_documents, properties.len(), linear.buckets);
            let first = LinearRelations::train(&data, &properties, linear, options.seed, |_| true);
            first.save(&model.join(PARTS[0]))?;
            average(&first, (options, &model), &validation)?
        }
        None => tune(&marked, options, &validation)?,
    };
    Ok(TrainedRelations { model, steps, maximum_recall, validation_f1: measure(f1), names })
}

/// Makes held-out documents of all documents.
fn held_out<'a>(
    sources: &'a [knowledgenet::Document],
    documents: &'a [Annotated],
    links: &'a [Links],
) -> Vec<HeldOut<'a>> {
    let each = sources.iter().zip(documents).zip(links);
    each.map(|((source, annotated), links)| HeldOut { source, annotated, links: links.as_deref() }).collect()
}

/// The documents with their mentions, candidates and annotated labels.
fn join(
    options: &PopulationOptions,
    sources: &[knowledgenet::Document],
    properties: &Properties,
) -> Result<Vec<Annotated>> {
    let texts: Vec<Document> =
        sources.iter().map(|source| Document::new(source.id.to_string(), source.text.clone())).collect();
    let mentions = mentions(&options.mentions)?.mentions(&texts)?;
    let each = sources.iter().zip(texts).zip(mentions);
    let join = |((source, document), mentions)| annotated(source, properties, document, mentions);
    Ok(each.map(join).collect::<Result<_, _>>()?)
}

/// Tunes thresholds by cross-validation over `parts` of the documents, then trains the final model on all
/// documents. Documents of the teacher are in every training.
fn fit_linear(
    options: &PopulationOptions,
    (linear, to): (&LinearTraining, &Path),
    parts: usize,
    properties: &Properties,
    (mut documents, teacher_documents): (Vec<Annotated>, Vec<Annotated>),
    observe: &mut Observer<'_>,
) -> Result<f64> {
    let annotated_count = documents.len();
    documents.extend(teacher_documents);
    let step = format!("train {}", options.relations.model.display());
    begin(observe, step, parts as u64 + 1, Unit::Steps);
    let data = LinearData::of(&documents, properties.len(), linear.buckets);
    documents.truncate(annotated_count);
    let mut scores: Vec<Vec<Scores>> = vec![Vec::new(); annotated_count];
    for part in 0..parts {
        let model = LinearRelations::train(&data, properties, linear, options.seed, |at| {
            at >= annotated_count || at % parts != part
        });
        for at in (part..annotated_count).step_by(parts) {
            scores[at] = score(&model, &documents[at])?;
        }
        advance(observe, part as u64 + 1);
    }
    let joined: Vec<(&Annotated, &[Scores])> =
        documents.iter().zip(&scores).map(|(a, s)| (a, &**s)).collect();
    let thresholds = Thresholds::tuned(properties.len(), &joined);
    let f1 = micro(&thresholds, &joined);
    let model = LinearRelations::train(&data, properties, linear, options.seed, |_| true);
    model.with_thresholds(thresholds).save(to)?;
    observe(Event::End);
    Ok(f1)
}

/// The inputs of the classifier for the sentences of a document.
pub(super) fn classifier_inputs(annotated: &Annotated) -> Vec<RelationInput<'_>> {
    let input = |candidates| (&annotated.document, &*annotated.mentions, candidates);
    annotated.candidates.iter().map(input).collect()
}

/// The scores of a document's sentences, with joint scores of both directions of a pair.
pub(super) fn score(model: &dyn RelationModel, annotated: &Annotated) -> Result<Vec<Scores>> {
    let scores = model.score(&classifier_inputs(annotated))?.into_iter().zip(&annotated.candidates);
    Ok(scores.map(|(scores, candidates)| scores.joint(&candidates.pairs, model.properties())).collect())
}

/// The annotated documents of all files, in order.
pub(super) fn load(annotations: &AnnotationsOptions) -> Result<Vec<knowledgenet::Document>> {
    let mut all = Vec::new();
    for path in &annotations.files {
        let before = all.len();
        for document in knowledgenet::annotated(path)? {
            let document = document?;
            if annotations.folds.contains(&document.fold) {
                all.push(document);
            }
        }
        if all.len() == before {
            return Err(
                sporran_kilt::Error::Empty { path: path.clone(), what: "document of the folds" }.into()
            );
        }
    }
    Ok(all)
}

/// An encoder with marked mentions in training.
struct MarkedTrainer<'a> {
    encoder: TunedEncoder,
    head: PairHead,
    tokenizer: Tokenizer,
    options: MarkedOptions,
    training: &'a RelationsTraining,
    extra_files: Vec<(String, Vec<u8>)>,
}

impl<'a> MarkedTrainer<'a> {
    fn new(
        options: &PopulationOptions,
        training: &'a RelationsTraining,
        properties: &Properties,
        training_documents: &[Annotated],
    ) -> Result<Self> {
        let device = options.relations.device.open()?;
        let head = |width: usize| PairHeadConfig {
            width,
            inner: training.hidden_size,
            features: FEATURES,
            labels: properties.len(),
            dropout: training.dropout,
        };
        let (encoder, head, tokenizer, markers, mut extra_files) = match (&training.from, &training.encoder) {
            (Some(from), _) => {
                let checkpoint = Checkpoint::open(from)?;
                let ModelConfig::Bert(config) = checkpoint.config() else {
                    return Err(sporran_checkpoint::Error::Architecture {
                        path: from.join("config.json"),
                        expected: "an encoder to tune (BERT, RoBERTa, XLM-RoBERTa or DistilBERT)",
                        found: "another model".into(),
                    }
                    .into());
                };
                let sizes = head(config.hidden_size);
                let (encoder, head) =
                    TunedEncoder::open_with_pairs(&checkpoint, &sizes, options.seed, &device)?;
                let tokenizer = checkpoint.tokenizer()?;
                let files = vec![("tokenizer.json".to_owned(), tokenizer.json().as_bytes().to_vec())];
                (encoder, head, tokenizer, Marking::default(), files)
            }
            (None, fresh) => {
                // `check_values` requires one of the two.
                let fresh = fresh.as_ref().ok_or_else(|| {
                    Error::Config(vec![sporran_config::Diagnostic::of_config(
                        "relations.training.encoder",
                        "is missing",
                    )])
                })?;
                let markers = Marking::default();
                let vocabulary = VocabularyOptions {
                    size: fresh.vocabulary,
                    min_frequency: 2,
                    marks: markers.tokens().to_vec(),
                };
                let texts: Vec<&str> =
                    training_documents.iter().map(|document| document.document.text.as_str()).collect();
                let files = tokenizer_files(&train_vocabulary(texts.iter(), &vocabulary)?)?;
                let json = String::from_utf8_lossy(&files[0].1).into_owned();
                let tokenizer = Tokenizer::from_json(Path::new("tokenizer.json"), json)?;
                let config = BertConfig {
                    family: BertFamily::Bert,
                    task: BertTask::States,
                    vocab_size: tokenizer.vocab_size(),
                    hidden_size: fresh.hidden_size,
                    num_hidden_layers: fresh.layers,
                    num_attention_heads: fresh.heads,
                    intermediate_size: 4 * fresh.hidden_size,
                    hidden_act: "gelu".into(),
                    hidden_dropout_prob: training.dropout,
                    attention_probs_dropout_prob: training.dropout,
                    head_dropout: training.dropout,
                    max_position_embeddings: training.max_tokens,
                    type_vocab_size: 2,
                    initializer_range: 0.02,
                    layer_norm_eps: 1e-12,
                    pad_token_id: 0,
                    projection_dim: 0,
                    labels: vec!["LABEL_0".into(), "LABEL_1".into()],
                    tie_word_embeddings: true,
                };
                let (encoder, head) = TunedEncoder::with_pairs(
                    &config,
                    &head(fresh.hidden_size),
                    Variables::new(options.seed),
                    &device,
                )?;
                (encoder, head, tokenizer, markers, files)
            }
        };
        let marked = MarkedOptions {
            version: MarkedOptions::VERSION,
            head: head.config().clone(),
            markers,
            max_tokens: training.max_tokens.min(encoder.config().max_input_length()),
            properties: properties.clone(),
            thresholds: Thresholds::even(properties.len(), 0.5),
        };
        let config = ModelConfig::Bert(encoder.config().clone()).to_json();
        extra_files.push(("config.json".to_owned(), format!("{config:#}\n").into_bytes()));
        extra_files.push((MARKED.to_owned(), json(&marked)?));
        Ok(Self { encoder, head, tokenizer, options: marked, training, extra_files })
    }

    fn optimise(
        &self,
        training_documents: &[Annotated],
        validation: &[Annotated],
        (folder, model): (&Path, &Path),
        observe: &mut Observer<'_>,
    ) -> Result<u64> {
        let examples = |documents: &[Annotated]| pair_examples(documents, &self.tokenizer, &self.options);
        let optimizer = &self.training.optimizer;
        let flat: Vec<PairExample> = examples(training_documents)?.into_iter().flatten().collect();
        let objective = PairObjective::new(&self.encoder, &self.head, flat, optimizer)?;
        let validation_examples = examples(validation)?;
        let evaluate = || -> Result<f64, EvaluationError> {
            let mut scored = Vec::with_capacity(validation_examples.len());
            for (annotated, examples) in validation.iter().zip(&validation_examples) {
                let logits = self.encoder.pair_logits(&self.head, examples, 4096)?;
                scored.push(self.scores(annotated, examples, logits));
            }
            Ok(f1(validation, &scored, &self.options.properties))
        };
        let session = TrainingSession {
            variables: self.encoder.variables(),
            options: optimizer,
            folder: folder.join("training"),
            model,
            dtype: self.training.dtype.into(),
            extra_files: &self.extra_files,
            score: "F1",
        };
        Ok(session.run(&objective, (!validation.is_empty()).then_some(&evaluate), observe)?.steps)
    }

    /// The number of mentions of each sentence within the token limit.
    fn read(&self, documents: &[Annotated]) -> Result<Vec<Vec<usize>>> {
        let examples = pair_examples(documents, &self.tokenizer, &self.options)?;
        let marks =
            |examples: &Vec<PairExample>| examples.iter().map(|example| example.marks.len()).collect();
        Ok(examples.iter().map(marks).collect())
    }

    /// The scores of a document's sentences from the logits of the pairs within the token limit.
    fn scores(&self, annotated: &Annotated, examples: &[PairExample], logits: Vec<Vec<f32>>) -> Vec<Scores> {
        let labels = self.options.properties.len();
        let sentences = annotated.candidates.iter().zip(examples).zip(logits);
        sentences
            .map(|((candidates, example), logits)| {
                let mut rest = logits.chunks_exact(labels.max(1));
                let mut values = Vec::with_capacity(candidates.pairs.len() * labels);
                for pair in &candidates.pairs {
                    let is_read = (pair.first.max(pair.second) as usize) < example.marks.len();
                    match if is_read { rest.next() } else { None } {
                        Some(logits) => {
                            values.extend(logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())))
                        }
                        None => values.extend(std::iter::repeat_n(0.0, labels)),
                    }
                }
                Scores::new(labels, values).joint(&candidates.pairs, &self.options.properties)
            })
            .collect()
    }
}

/// The micro F1 with thresholds that are tuned on the same documents.
pub(super) fn f1<T: Borrow<Annotated>>(
    documents: &[T],
    scores: &[Vec<Scores>],
    properties: &Properties,
) -> f64 {
    let joined: Vec<(&Annotated, &[Scores])> =
        documents.iter().zip(scores).map(|(a, s)| (a.borrow(), &**s)).collect();
    let thresholds = Thresholds::tuned(properties.len(), &joined);
    micro(&thresholds, &joined)
}

pub(super) fn micro(thresholds: &Thresholds, documents: &[(&Annotated, &[Scores])]) -> f64 {
    thresholds.counts(documents).into_iter().sum::<ThresholdCounts>().f1()
}

/// Tunes the thresholds of a model on the validation documents. Returns their micro F1.
fn tune(model: &Path, options: &PopulationOptions, validation: &[Annotated]) -> Result<f64> {
    let relations = MarkedEntities::load(model, options.relations.device, Precision::F32)?;
    let scored: Vec<Vec<Scores>> =
        validation.iter().map(|annotated| score(&relations, annotated)).collect::<Result<_>>()?;
    let joined: Vec<(&Annotated, &[Scores])> =
        validation.iter().zip(&scored).map(|(a, s)| (a, &**s)).collect();
    let thresholds = Thresholds::tuned(relations.properties().len(), &joined);
    let micro = micro(&thresholds, &joined);
    let marked = MarkedOptions { thresholds, ..MarkedOptions::load(model)? };
    jsonl::write(model.join(MARKED), &json(&marked)?)?;
    Ok(micro)
}

fn json(options: &MarkedOptions) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(options)
        .map_err(|error| Error::io(Path::new(MARKED), "write")(error.into()))?;
    bytes.push(b'\n');
    Ok(bytes)
}
