//! Training the generator's model on task files, with the passages that its retriever finds.
//!
//! What the model reads in training is what it will read in a run: the same queries, the same index, the same prompt.

use std::{path::PathBuf, sync::Arc};

use candle_core::DType;
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use sporran_generator::{Candidate, Generator, Prompt, Request, Seq2SeqGenerator};
use sporran_kilt::{
    Example, Metric, Output, Passage, PassageId, PassageStore, Query,
    scores::answer::{self, Answers},
};
use sporran_transformers::{
    Tokenizer,
    training::{EvaluationError, Row, Seq2SeqObjective, Variables},
};

use crate::{
    Error, Result,
    assemble::{Assembly, assemble_retrieval},
    encoders::train_encoder,
    folder::Folder,
    fusion::train_fid,
    generation::GeneratorOptions,
    inputs::Inputs,
    key::StepKey,
    learn::Learning,
    memory::train_memory,
    observe::{Event, Observer, Unit, advance, begin},
    options::{General, Options, Target, TasksOptions, TrainOptions},
    pupil::{Pupil, Start},
    query::for_retrieval,
    rag::{Rag, train_rag},
    reading::train_reader,
    settings::task_files,
    tasks,
    training_folder::TrainingFolder,
    verification::train_verifier,
};

/// How a training ended.
#[derive(Clone, Debug, Serialize)]
pub struct Trained {
    /// Where the model is.
    pub model: PathBuf,
    /// Steps made.
    pub steps: u64,
    /// The step of the best judgement and its score, 0 to 1: for a generator the mean over datasets of their headline
    /// scores, for an encoder the mean reciprocal rank.
    pub best: Option<(u64, f64)>,
}

/// An example with the passages that were retrieved for it.
pub(crate) struct Reading {
    pub(crate) example: Example,
    pub(crate) passages: Vec<(Passage, f32)>,
}

impl Reading {
    pub(crate) fn ask<T>(&self, use_request: impl FnOnce(&Request<'_>) -> T) -> T {
        let candidates: Vec<Candidate<'_>> =
            self.passages.iter().map(|(passage, score)| Candidate { passage, score: *score }).collect();
        use_request(&Request { query: &self.example.query, passages: &candidates })
    }
}

/// Trains what a config says: the encoder of `[encoder-training]`, or the model of its generator, which goes where `[train]`
/// says. A training that was stopped goes on from
/// its newest checkpoint.
///
/// # Errors
/// [`Error::Config`] without `[train]` or `[generator]`; whatever is wrong with files, index, model or training.
pub fn train(options: &Options, observe: &mut Observer<'_>) -> Result<Trained> {
    let folder = Folder::open(options.general.output.join(&options.general.name))?;
    let mut inputs = Inputs::default();
    let key = training_key(options, &mut inputs)?;
    let underway = TrainingFolder::begin_with(folder, inputs, key)?;
    let trained = learn(options, observe)?;
    underway.finish()?;
    Ok(trained)
}

/// The options that no training depends on: where models and indexes go, what a run does with them, and folders of task files,
/// each of which counts by itself.
const WITHOUT: [&str; 12] = [
    "evidence",
    "source.indexes",
    "tasks.folder",
    "tasks.gold",
    "train.model",
    "train.examples.folder",
    "encoder-training.model",
    "encoder-training.examples.folder",
    "generator.model",
    "generator.pages.model",
    "generator.selection.model",
    "generator.precision",
];

/// All that a training depends on.
fn training_key(options: &Options, inputs: &mut Inputs) -> Result<StepKey> {
    let General { tasks, train, encoder_training, .. } = &options.general;
    let mut key = StepKey::training(&options.to_table()?)?.without(&WITHOUT);
    if train.as_ref().is_some_and(|train| train.question_encoder.is_some()) {
        // The trained one goes there.
        key = key.without(&["retriever.model"]);
    }
    let examples = train.as_ref().map(|train| (&train.examples, "train.examples"));
    let own = encoder_training.as_ref().and_then(|training| training.examples.as_ref());
    let tables = [Some((tasks, "tasks")), examples, own.map(|own| (own, "encoder-training.examples"))];
    for (tasks, table) in tables.into_iter().flatten() {
        for task in task_files(tasks, table)? {
            key = key.input(&format!("{table} {}", task.name), inputs.file(&task.path)?);
        }
    }
    Ok(key)
}

fn learn(options: &Options, observe: &mut Observer<'_>) -> Result<Trained> {
    if let Some(training) = &options.general.encoder_training {
        return train_encoder(options, training, observe);
    }
    let missing = |key: &str| {
        let message = format!("is missing; training needs `[{key}]`");
        Error::Config(vec![crate::Diagnostic { origin: "config".into(), line: 0, key: key.into(), message }])
    };
    let train = options.general.train.as_ref().ok_or_else(|| missing("train"))?;
    let generator = match &options.generator {
        Some(GeneratorOptions::Seq2Seq(generator)) => generator,
        Some(GeneratorOptions::Verifier(verifier)) => {
            return train_verifier(options, train, verifier, observe);
        }
        Some(GeneratorOptions::Fid(fid)) => return train_fid(options, train, fid, observe),
        Some(GeneratorOptions::MemNet(network)) => return train_memory(options, train, network, observe),
        Some(GeneratorOptions::RagToken(rag)) => return train_rag(options, train, Rag::Token(rag), observe),
        Some(GeneratorOptions::RagSequence(rag)) => {
            return train_rag(options, train, Rag::Sequence(rag), observe);
        }
        Some(GeneratorOptions::Extractive(reader)) => return train_reader(options, train, reader, observe),
        Some(_) => {
            let (key, message) = ("generator.kind".into(), crate::settings::UNTRAINED.into());
            return Err(Error::Config(vec![crate::Diagnostic {
                origin: "config".into(),
                line: 0,
                key,
                message,
            }]));
        }
        None => return Err(missing("generator")),
    };
    let assembly = assemble_retrieval(options, observe)?;
    let mut examples = readings(
        options,
        &train.examples,
        "train.examples",
        None,
        generator.prompt.passages,
        train.add_gold,
        &assembly,
        observe,
    )?;
    let mut judged = readings(
        options,
        &options.general.tasks,
        "tasks",
        Some(train.judged),
        generator.prompt.passages,
        false,
        &assembly,
        observe,
    )?;
    if let (Target::Title, Some(store)) = (train.target, &assembly.store) {
        with_titles(&mut examples, store);
        with_titles(&mut judged, store);
    }

    let Pupil { model, tokenizer, variables, companions } = pupil(options, train, &assembly, &examples)?;

    let rows = Rows {
        examples: &examples,
        prompt: Prompt::new(generator.prompt.clone())?,
        tokenizer: &tokenizer,
        train,
        seed: options.general.seed,
    };
    let judge = Seq2SeqGenerator::new(generator, model.clone(), tokenizer.clone())?;
    let evaluate = || judged_score(&judge, &judged).map_err(EvaluationError::from);
    let of_epoch = |epoch| rows.of_epoch(epoch);
    let objective = Seq2SeqObjective::new(model.as_ref(), &variables, &train.optimizer, &of_epoch);
    let learning = learning(&options.general, train, &variables, &companions);
    learning.run(&objective, (!judged.is_empty()).then_some(&evaluate), observe)
}

/// The training of a generator's model, whose checkpoints go into the run's folder.
pub(crate) fn learning<'a>(
    general: &General,
    train: &'a TrainOptions,
    variables: &'a Variables,
    companions: &'a [(String, Vec<u8>)],
) -> Learning<'a> {
    Learning {
        variables,
        options: &train.optimizer,
        folder: general.output.join(&general.name).join("training"),
        model: &train.model,
        dtype: DType::F16,
        companions,
        score: "mean score",
    }
}

/// The model's card: what it is and where it comes from.
pub(crate) fn card(options: &Options, role: &str, variables: &Variables) -> String {
    let General { name, seed, .. } = &options.general;
    format!(
        "role = \"{role}\"\nparameters = {}\nsource = \"sporran {} train, config {name}, seed {seed}\"\n",
        variables.parameter_count(),
        env!("CARGO_PKG_VERSION"),
    )
}

/// Reads task files and retrieves for every record as a run would.
#[expect(
    clippy::too_many_arguments,
    reason = "one call for training and one for judging, which share all of it"
)]
pub(crate) fn readings(
    options: &Options,
    files: &TasksOptions,
    table: &str,
    limit: Option<usize>,
    wanted: usize,
    add_gold: bool,
    assembly: &Assembly,
    observe: &mut Observer<'_>,
) -> Result<Vec<Reading>> {
    let mut readings = Vec::new();
    for mut task in task_files(files, table)? {
        task.limit = limit.or(task.limit);
        let examples = tasks::examples(&task)?;
        begin(observe, format!("retrieve for {}", task.name), examples.len() as u64, Unit::Records);
        for (number, chunk) in examples.chunks(512).enumerate() {
            let queries: Vec<Query> =
                chunk.iter().map(|example| for_retrieval(&example.query, &options.general.query)).collect();
            let hits = match &assembly.retriever {
                Some(retriever) => retriever.retrieve(&queries, wanted.max(1))?,
                None => vec![Vec::new(); queries.len()],
            };
            for (example, hits) in chunk.iter().zip(hits) {
                let mut passages: Vec<(Passage, f32)> = Vec::new();
                if let Some(store) = &assembly.store {
                    passages.extend(hits.iter().map(|hit| (store.passage(hit.passage), hit.score)));
                    if add_gold && !passages.is_empty() {
                        add_gold_passage(store, example, &mut passages);
                    }
                }
                if !example.answers().is_empty() {
                    readings.push(Reading { example: example.clone(), passages });
                }
            }
            assembly.sound()?;
            advance(observe, (number * 512 + chunk.len()) as u64);
        }
        observe(Event::End);
    }
    Ok(readings)
}

/// Puts the titles of their gold pages in the place of examples' answers; one without any is left out.
fn with_titles(readings: &mut Vec<Reading>, store: &PassageStore) {
    for reading in readings.iter_mut() {
        let gold = reading.example.gold.iter().flat_map(|output| output.evidence());
        let titles = gold.filter_map(|item| {
            let page = store.page_by_id(&item.wikipedia_id.as_ref()?.text())?;
            Some(store.page_title(page).to_owned())
        });
        let output = |title| Output { answer: Some(title), ..Output::default() };
        reading.example.gold = titles.map(output).collect();
    }
    readings.retain(|reading| !reading.example.gold.is_empty());
}

/// Where no gold page was retrieved, the first gold page's passage takes the last place.
fn add_gold_passage(store: &PassageStore, example: &Example, passages: &mut [(Passage, f32)]) {
    let gold = || {
        example.gold.iter().flat_map(|output| output.evidence()).filter_map(|item| item.wikipedia_id.as_ref())
    };
    let retrieved =
        gold().any(|id| passages.iter().any(|(passage, _)| id.text() == passage.page_id.as_str()));
    if let (false, Some(id), Some(last)) = (retrieved, gold().next(), passages.last_mut())
        && let Some(page) = store.page_by_id(&id.text())
    {
        *last = (store.passage(PassageId(store.passages_of(page).start)), last.1);
    }
}

/// The model that `[train]` starts from: a folder's, or one with random weights.
pub(crate) fn pupil(
    options: &Options,
    train: &TrainOptions,
    assembly: &Assembly,
    examples: &[Reading],
) -> Result<Pupil> {
    let seed = options.general.seed;
    let start = match &train.from {
        Some(from) => Start::of_folder(from, seed)?,
        None => {
            let store = assembly.store.as_deref();
            let passages = store.into_iter().flat_map(|store| {
                (0..store.len() as u32)
                    .map(PassageId)
                    .map(|id| format!("{} / {}", store.page_title(store.page_of(id)), store.text(id)))
            });
            let pairs = examples.iter().flat_map(|reading| {
                let answers = reading.example.answers().into_iter().map(str::to_owned).collect::<Vec<_>>();
                std::iter::once(reading.example.query.text.clone()).chain(answers)
            });
            let texts: Vec<String> = passages.chain(pairs).collect();
            let marks = ["[START_ENT]", "[END_ENT]", "[SEP]"];
            tracing::info!(examples = examples.len(), "a new model");
            Start::fresh(&train.shape, &texts, &marks, seed)?
        }
    };
    start.pupil(&train.device.open()?, |variables| card(options, "generator", variables))
}

/// Token rows of an epoch: each example with one of its answers, its passages in a fresh order.
struct Rows<'a> {
    examples: &'a [Reading],
    prompt: Prompt,
    tokenizer: &'a Tokenizer,
    train: &'a TrainOptions,
    seed: u64,
}

impl Rows<'_> {
    fn of_epoch(&self, epoch: u64) -> sporran_transformers::Result<Arc<Vec<Row>>> {
        use rayon::prelude::*;
        let rows: sporran_transformers::Result<Vec<Row>> = self
            .examples
            .par_iter()
            .enumerate()
            .map(|(number, reading)| self.row(reading, epoch, number as u64))
            .collect();
        Ok(Arc::new(rows?))
    }

    fn row(&self, reading: &Reading, epoch: u64, number: u64) -> sporran_transformers::Result<Row> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ 0x5eed);
        rng.set_stream(epoch << 32 | number);
        let answers = reading.example.answers();
        // The first gold answer is the one to learn; later ones are aliases that the page need not hold.
        // Gold pages are all alike.
        let first = self.train.target == Target::Answer && rng.random_bool(0.9);
        let target = answers[if first { 0 } else { rng.random_range(0..answers.len()) }];
        let mut passages = reading.passages.clone();
        // The order of passages must not be what the model goes by where the retriever errs.
        if rng.random_bool(0.3) {
            passages.shuffle(&mut rng);
        }
        let shuffled = Reading { example: reading.example.clone(), passages };
        let source = shuffled.ask(|request| self.prompt.text(request, self.tokenizer)).map_err(|error| {
            sporran_transformers::Error::Callback { what: "the prompt", source: error.into() }
        })?;
        let source = self.tokenizer.encode(&source, Some(self.prompt.options().max_tokens))?;
        let target = self.tokenizer.encode(target, Some(self.train.target_tokens))?;
        Ok(Row { source, target })
    }
}

/// The mean over datasets of their headline scores.
pub(crate) fn judged_score(generator: &dyn Generator, judged: &[Reading]) -> Result<f64> {
    let mut groups: Vec<(Option<sporran_kilt::Dataset>, Vec<f64>)> = Vec::new();
    let candidates: Vec<Vec<Candidate<'_>>> = judged
        .iter()
        .map(|reading| {
            reading.passages.iter().map(|(passage, score)| Candidate { passage, score: *score }).collect()
        })
        .collect();
    let requests: Vec<Request<'_>> = judged
        .iter()
        .zip(&candidates)
        .map(|(reading, candidates)| Request { query: &reading.example.query, passages: candidates })
        .collect();
    for (reading, generation) in judged.iter().zip(generator.generate(&requests)?) {
        let dataset = reading.example.query.dataset;
        let scores: answer::Scores = Answers::new(reading.example.answers()).score(&generation.text);
        let score = match dataset.map_or(Metric::ExactMatch, |dataset| dataset.metric()) {
            Metric::Accuracy => scores.accuracy,
            Metric::ExactMatch => scores.em,
            Metric::F1 => scores.f1,
            Metric::RougeL => scores.rougel,
        };
        match groups.iter_mut().find(|(known, _)| *known == dataset) {
            Some((_, scores)) => scores.push(score),
            None => groups.push((dataset, vec![score])),
        }
    }
    let means = groups.iter().map(|(_, scores)| scores.iter().sum::<f64>() / scores.len() as f64);
    Ok(means.sum::<f64>() / groups.len().max(1) as f64)
}
