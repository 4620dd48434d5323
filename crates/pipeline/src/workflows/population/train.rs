//! Making the models of knowledge-base population.

use std::{
    borrow::Borrow,
    fmt,
    path::{Path, PathBuf},
};

use candle_core::DType;
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
use sporran_kilt::{StagedFolder, jsonl, knowledgenet, scores::Measure};
use sporran_training::{
    EvaluationError, PairExample, PairObjective, TunedEncoder, Variables, VocabularyOptions, tokenizer_files,
    train_vocabulary,
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
    recall::{LeftOut, MaximumRecall, reach},
    teacher::taught,
    triplets::train as train_triplets,
};
use crate::{
    Error, Result,
    observe::{Event, Observer, Unit, advance, begin},
    run_dir::{manifest::TrainingEntry, training::TrainingFolder},
    training::session::Learning,
};

/// What a training made.
#[derive(Clone, Debug, Serialize)]
pub struct Learned {
    /// The model's folder.
    pub model: PathBuf,
    /// Optimiser steps.
    pub steps: u64,
    /// The most that can be recalled of the facts of the documents that were not learned from.
    #[serde(flatten)]
    pub maximum_recall: MaximumRecall,
    /// Micro F1 of facts by the documents that were not learned from, with thresholds that were tuned on them; nothing where
    /// none was left out.
    pub judged: Measure,
    /// Names in the linker's table; 0 where there is none.
    pub names: usize,
}

impl fmt::Display for Learned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recall = &self.maximum_recall;
        write!(
            f,
            "{} steps\nvalidation documents: maximum recall {:.3} by text, {:.3} by link; F1 {:.1}",
            self.steps,
            recall.text,
            recall.link,
            self.judged.percent()
        )
    }
}

/// Trains `[relations]`. A training that was stopped goes on from its newest checkpoint.
///
/// # Errors
/// [`Error::Config`] where the config does not say what to learn from or how; whatever is wrong with files, models or
/// training.
pub fn train(options: &PopulationOptions, observe: &mut Observer<'_>) -> Result<Learned> {
    let annotations = options.annotations.as_ref().ok_or_else(|| missing("annotations"))?;
    let mut underway = TrainingFolder::begin(options.folder(), options, &WITHOUT)?;
    let staged = StagedFolder::create(&options.relations.model)?;
    let learned = learn(options, annotations, (&staged.path(), &mut underway), observe)?;
    staged.commit()?;
    underway.finish(TrainingEntry { steps: learned.steps, best: learned.judged.value() })?;
    Ok(Learned { model: options.relations.model.clone(), ..learned })
}

/// The options that no training depends on: where it writes, and what is read with the model then.
const WITHOUT: [&str; 6] =
    ["relations.model", "relations.precision", "linker.aliases", "teacher.readings", "input", "triples"];

fn missing(key: &str) -> Error {
    Error::Config(vec![sporran_config::Diagnostic::of_config(key, "is missing; training needs it")])
}

/// Makes the model in the folder `model`.
fn learn(
    options: &PopulationOptions,
    annotations: &AnnotationsOptions,
    (model, underway): (&Path, &mut TrainingFolder),
    observe: &mut Observer<'_>,
) -> Result<Learned> {
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
        let (steps, maximum_recall, judged) =
            train_triplets(options, seq2seq, (annotations, &model), annotated, observe)?;
        return Ok(Learned { model, steps, maximum_recall, judged, names });
    }
    let mut documents = join(options, &sources, &properties)?;
    let links = match (&options.relations.bilstm, &options.linker) {
        (None, None) => vec![None; documents.len()],
        _ => background(options, &sources, &mut documents)?,
    };
    let taught = match &options.teacher {
        Some(teacher) => taught(options, teacher, &properties, observe)?,
        None => Vec::new(),
    };
    if let (Some(linear), None) = (&options.relations.linear, &options.relations.training) {
        // Cross-validation leaves each document out once.
        let maximum_recall = {
            let left_out = left_out(&sources, &documents, &links);
            let reached = reach(&left_out, &properties, |_, _, _, _| true);
            MaximumRecall::told(reached, left_out.len(), observe)
        };
        let judged = fit_linear(
            options,
            (linear, &model),
            annotations.judge_every,
            &properties,
            (documents, taught),
            observe,
        )?;
        let (steps, judged) = (linear.passes as u64, judged.into());
        return Ok(Learned { model, steps, maximum_recall, judged, names });
    }
    let every = annotations.judge_every;
    let is_judge = |at: usize| at % every == every - 1;
    let (mut learned, mut judges) = (Vec::new(), Vec::new());
    for (at, document) in documents.into_iter().enumerate() {
        if is_judge(at) { judges.push(document) } else { learned.push(document) }
    }
    tracing::info!(learned = learned.len(), judges = judges.len(), "annotated documents");
    learned.extend(taught);
    let numbers = (0..sources.len()).filter(|at| is_judge(*at));
    let left_out: Vec<LeftOut<'_>> = numbers
        .zip(&judges)
        .map(|(at, annotated)| LeftOut { source: &sources[at], annotated, links: links[at].as_deref() })
        .collect();
    let of_judges = |f1: f64| if judges.is_empty() { Measure::default() } else { f1.into() };
    if let Some(bilstm) = &options.relations.bilstm {
        let parts = (learned.as_slice(), left_out.as_slice());
        let (steps, maximum_recall, judged) =
            train_bilstm(options, (bilstm, &model), &properties, parts, observe)?;
        return Ok(Learned { model, steps, maximum_recall, judged: of_judges(judged), names });
    }
    let training = options.relations.training.as_ref().ok_or_else(|| missing("relations.training"))?;
    let marker = Marker::new(options, training, &properties, &learned)?;
    // Regressions read every pair, an encoder those that its tokens hold.
    let read = match &options.relations.linear {
        Some(_) => Vec::new(),
        None => marker.read(&judges)?,
    };
    let reached = reach(&left_out, &properties, |at, sentence, pair, _| {
        let pair = &judges[at].candidates[sentence].pairs[pair];
        read.get(at).is_none_or(|marks| (pair.first.max(pair.second) as usize) < marks[sentence])
    });
    let maximum_recall = MaximumRecall::told(reached, left_out.len(), observe);
    let folder = options.folder();
    let marked = match &options.relations.linear {
        Some(_) => model.join(PARTS[1]),
        None => model.clone(),
    };
    let steps = marker.optimise(&learned, &judges, (&folder, &marked), observe)?;
    let judged = match &options.relations.linear {
        Some(linear) => {
            let data = LinearData::of(&learned, properties.len(), linear.buckets);
            let first = LinearRelations::train(&data, &properties, linear, options.seed, |_| true);
            first.save(&model.join(PARTS[0]))?;
            average(&first, (options, &model), &judges)?
        }
        None => tune(&marked, options, &judges)?,
    };
    Ok(Learned { model, steps, maximum_recall, judged: of_judges(judged), names })
}

/// Documents as those that are left out.
fn left_out<'a>(
    sources: &'a [knowledgenet::Document],
    documents: &'a [Annotated],
    links: &'a [Links],
) -> Vec<LeftOut<'a>> {
    let each = sources.iter().zip(documents).zip(links);
    each.map(|((source, annotated), links)| LeftOut { source, annotated, links: links.as_deref() }).collect()
}

/// The documents with their mentions, their candidates and what is annotated of these.
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

/// Cross-validation over so many parts of the documents gives each a score that did not learn from it, which thresholds are
/// tuned on; the model that is kept learns from all of them. What was taught is learned each time.
fn fit_linear(
    options: &PopulationOptions,
    (linear, to): (&LinearTraining, &Path),
    parts: usize,
    properties: &Properties,
    (mut documents, taught): (Vec<Annotated>, Vec<Annotated>),
    observe: &mut Observer<'_>,
) -> Result<f64> {
    let judges = documents.len();
    documents.extend(taught);
    let step = format!("train {}", options.relations.model.display());
    begin(observe, step, parts as u64 + 1, Unit::Steps);
    let data = LinearData::of(&documents, properties.len(), linear.buckets);
    documents.truncate(judges);
    let mut scores: Vec<Vec<Scores>> = vec![Vec::new(); judges];
    for part in 0..parts {
        let model = LinearRelations::train(&data, properties, linear, options.seed, |at| {
            at >= judges || at % parts != part
        });
        for at in (part..judges).step_by(parts) {
            scores[at] = score(&model, &documents[at])?;
        }
        advance(observe, part as u64 + 1);
    }
    let joined: Vec<(&Annotated, &[Scores])> =
        documents.iter().zip(&scores).map(|(a, s)| (a, &**s)).collect();
    let thresholds = Thresholds::tuned(properties.len(), &joined);
    let judged = micro(&thresholds, &joined);
    let model = LinearRelations::train(&data, properties, linear, options.seed, |_| true);
    model.with_thresholds(thresholds).save(to)?;
    observe(Event::End);
    Ok(judged)
}

/// The sentences of a document.
pub(super) fn asked(annotated: &Annotated) -> Vec<RelationInput<'_>> {
    let asked = |candidates| (&annotated.document, &*annotated.mentions, candidates);
    annotated.candidates.iter().map(asked).collect()
}

/// The scores of a document's sentences, both directions of a pair decided together.
pub(super) fn score(model: &dyn RelationModel, annotated: &Annotated) -> Result<Vec<Scores>> {
    let scores = model.score(&asked(annotated))?.into_iter().zip(&annotated.candidates);
    Ok(scores.map(|(scores, candidates)| scores.joint(&candidates.pairs, model.properties())).collect())
}

/// The annotated documents, file after file.
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

/// A model under training.
struct Marker<'a> {
    encoder: TunedEncoder,
    head: PairHead,
    tokenizer: Tokenizer,
    options: MarkedOptions,
    training: &'a RelationsTraining,
    companions: Vec<(String, Vec<u8>)>,
}

impl<'a> Marker<'a> {
    fn new(
        options: &PopulationOptions,
        training: &'a RelationsTraining,
        properties: &Properties,
        learned: &[Annotated],
    ) -> Result<Self> {
        let device = options.relations.device.open()?;
        let head = |width: usize| PairHeadConfig {
            width,
            inner: training.inner,
            features: FEATURES,
            labels: properties.len(),
            dropout: training.dropout,
        };
        let (encoder, head, tokenizer, markers, mut companions) = match (&training.from, &training.encoder) {
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
                // `check_values` has made sure of one of the two.
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
                    learned.iter().map(|document| document.document.text.as_str()).collect();
                let files = tokenizer_files(&train_vocabulary(texts.iter(), &vocabulary)?)?;
                let json = String::from_utf8_lossy(&files[0].1).into_owned();
                let tokenizer = Tokenizer::from_json(Path::new("tokenizer.json"), json)?;
                let config = BertConfig {
                    family: BertFamily::Bert,
                    task: BertTask::States,
                    vocab_size: tokenizer.vocab_size(),
                    hidden_size: fresh.width,
                    num_hidden_layers: fresh.layers,
                    num_attention_heads: fresh.heads,
                    intermediate_size: 4 * fresh.width,
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
                    &head(fresh.width),
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
        companions.push(("config.json".to_owned(), format!("{config:#}\n").into_bytes()));
        companions.push((MARKED.to_owned(), json(&marked)?));
        Ok(Self { encoder, head, tokenizer, options: marked, training, companions })
    }

    fn optimise(
        &self,
        learned: &[Annotated],
        judges: &[Annotated],
        (folder, model): (&Path, &Path),
        observe: &mut Observer<'_>,
    ) -> Result<u64> {
        let examples = |documents: &[Annotated]| pair_examples(documents, &self.tokenizer, &self.options);
        let optimizer = &self.training.optimizer;
        let flat: Vec<PairExample> = examples(learned)?.into_iter().flatten().collect();
        let objective = PairObjective::new(&self.encoder, &self.head, flat, optimizer)?;
        let asked = examples(judges)?;
        let evaluate = || -> Result<f64, EvaluationError> {
            let mut scored = Vec::with_capacity(asked.len());
            for (annotated, examples) in judges.iter().zip(&asked) {
                let logits = self.encoder.pair_logits(&self.head, examples, 4096)?;
                scored.push(self.scores(annotated, examples, logits));
            }
            Ok(f1(judges, &scored, &self.options.properties))
        };
        let learning = Learning {
            variables: self.encoder.variables(),
            options: optimizer,
            folder: folder.join("training"),
            model,
            dtype: if self.training.half { DType::F16 } else { DType::F32 },
            companions: &self.companions,
            score: "F1",
        };
        Ok(learning.run(&objective, (!judges.is_empty()).then_some(&evaluate), observe)?.steps)
    }

    /// How many mentions of each sentence of documents are read.
    fn read(&self, documents: &[Annotated]) -> Result<Vec<Vec<usize>>> {
        let examples = pair_examples(documents, &self.tokenizer, &self.options)?;
        let marks =
            |examples: &Vec<PairExample>| examples.iter().map(|example| example.marks.len()).collect();
        Ok(examples.iter().map(marks).collect())
    }

    /// The scores of a document's sentences from the logits of the pairs that were read.
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

/// Micro F1 with thresholds that are tuned on the same documents.
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

/// Sets a model's thresholds by annotated documents that it has not learned from; gives F1 with them.
fn tune(model: &Path, options: &PopulationOptions, judges: &[Annotated]) -> Result<f64> {
    let relations = MarkedEntities::load(model, options.relations.device, Precision::F32)?;
    let scored: Vec<Vec<Scores>> =
        judges.iter().map(|annotated| score(&relations, annotated)).collect::<Result<_>>()?;
    let joined: Vec<(&Annotated, &[Scores])> = judges.iter().zip(&scored).map(|(a, s)| (a, &**s)).collect();
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
