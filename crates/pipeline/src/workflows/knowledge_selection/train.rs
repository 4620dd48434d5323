//! Training a reranker on annotated sentences.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use candle_core::DType;
use serde::Serialize;
use sporran_kilt::{
    StagedFolder, hash_json, jsonl,
    observe::Observer,
    scores::ranking::{Candidate, Ranked, Report, score},
    wowpp::{self, Dialogue, Dialogues},
};
use sporran_reranker::{
    COUNTS, Computing, PagePool, QuerySource, QueryView, Reranker, Saved, SavedPart, TfIdf, open,
    passage_text,
};
use sporran_training::{
    EvaluationError, MaskedLmObjective, MaskingTokens, Objective, RankingObjective, RankingQuery,
    TrainingOptions, TunedEncoder,
    session::{Evaluate, TrainingSession, encoder_files},
};
use sporran_transformers::{BertTask, Checkpoint, EncoderInput, EncoderRow, Precision, Text, Truncation};

use super::{
    data::{Labels, Selection, folds, sampled},
    linear::{Similarity, listwise_weights, standardised, summed},
    options::{EncoderOptions, MaskedLmOptions, RerankerTraining, SelectionOptions, TunedOptions},
    rank::{rank, rank_one, write_ranking},
};
use crate::{
    Error, Result,
    run_dir::{
        folder::RunDir,
        inputs::Inputs,
        key::StepKey,
        manifest::TrainingEntry,
        step::{FileStep, Lines},
        training::TrainingFolder,
    },
};

/// The outcome of a reranker training.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TrainedReranker {
    /// The folders of the rerankers: one, or one for each fold.
    pub models: Vec<PathBuf>,
    /// The file with the rankings of the held-out folds, if there are folds.
    pub ranking: Option<PathBuf>,
    /// The scores of these rankings. `data.threshold` is the smallest confidence of a relevant sentence.
    pub scores: Option<Report>,
    /// The number of optimiser steps over all folds.
    pub steps: u64,
}

impl fmt::Display for TrainedReranker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps", self.steps)?;
        if let Some(ranking) = &self.ranking {
            write!(f, "\nranking: {}", ranking.display())?;
        }
        match &self.scores {
            Some(scores) => write!(f, "\n{scores}"),
            None => Ok(()),
        }
    }
}

/// Trains the reranker of a config on all dialogues. With folds, it trains a reranker on the other folds for each fold, and
/// ranks the fold's dialogues. A stopped training resumes from its newest checkpoint.
///
/// # Errors
/// Errors of files, models or training.
pub fn train(options: &SelectionOptions, observe: &mut Observer<'_>) -> Result<TrainedReranker> {
    // Several calls can train one fold each.
    let mut underway = TrainingFolder::begin(options.folder(), options, &["data.fold"])?;
    let dialogues = wowpp::load(&options.data.train)?;
    let original = options.data.original.as_ref().map(wowpp::load).transpose()?.unwrap_or_default();
    underway.verify()?;
    let folder = options.folder();
    let mut outcome = TrainedReranker::default();
    let Some(count) = options.data.folds else {
        let all: Vec<&(String, Dialogue)> = dialogues.0.iter().collect();
        outcome.steps = fit(options, &all, &original, &folder, observe)?;
        outcome.models.push(folder.join("model"));
        underway.finish(TrainingEntry { steps: outcome.steps, best: None })?;
        return Ok(outcome);
    };
    let fold_of = folds(&dialogues, count, options.seed);
    let mut ranked: Vec<(usize, Ranked)> = Vec::new();
    for fold in (0..count).filter(|fold| options.data.fold.is_none_or(|only| only == *fold)) {
        let folder = folder.join(format!("fold-{fold}"));
        let others: Vec<&(String, Dialogue)> =
            (0..fold_of.len()).filter(|at| fold_of[*at] != fold).map(|at| &dialogues.0[at]).collect();
        outcome.steps += fit(options, &others, &original, &folder, observe)?;
        let reranker = open(&folder.join("model"), COMPUTING)?;
        let own: Vec<usize> = (0..fold_of.len()).filter(|at| fold_of[*at] == fold).collect();
        let left_out: Vec<(String, Dialogue)> = own.iter().map(|&at| dialogues.0[at].clone()).collect();
        let found = match underway.folder() {
            Some(run) => rank_fold(options, (run, fold), &left_out, &*reranker, observe)?,
            None => rank(&left_out, &*reranker, observe)?,
        };
        ranked.extend(own.into_iter().zip(found));
        outcome.models.push(folder.join("model"));
    }
    ranked.sort_by_key(|(at, _)| *at);
    let ranked: Vec<Ranked> = ranked.into_iter().map(|(_, ranked)| ranked).collect();
    let name =
        options.data.fold.map_or_else(|| "ranking.jsonl".into(), |fold| format!("ranking-{fold}.jsonl"));
    let path = folder.join(name);
    write_ranking(&path, &ranked)?;
    outcome.ranking = Some(path);
    outcome.scores = Some(Report::of(&ranked, options.data.threshold));
    let best = outcome.scores.as_ref().and_then(|report| report.scores.mrr_at_1.value());
    underway.finish(TrainingEntry { steps: outcome.steps, best })?;
    Ok(outcome)
}

/// The number of dialogues in a portion.
const PORTION: usize = 32;

/// Ranks the held-out dialogues of a fold into `fold-N/ranking.jsonl`. Resumes after the portions that are there.
fn rank_fold(
    options: &SelectionOptions,
    (folder, fold): (&RunDir, usize),
    left_out: &[(String, Dialogue)],
    reranker: &dyn Reranker,
    observe: &mut Observer<'_>,
) -> Result<Vec<Ranked>> {
    let mut inputs = Inputs::default();
    let content = inputs.file(&options.data.train)?;
    let model = inputs.content(&folder.root.join(format!("fold-{fold}/model")))?;
    let key = StepKey::new("rank a fold", &options.data)?.input("seed", options.seed.to_string());
    let key = key.input("content", content).input("model", hash_json(&model));
    let path = PathBuf::from(format!("fold-{fold}/ranking.jsonl"));
    let step = FileStep {
        title: "rank sentences".into(),
        name: &format!("fold-{fold}.ranking"),
        key: key.input("portion", PORTION.to_string()),
        outputs: vec![path.clone()],
        inputs: &inputs,
    };
    let make = |_, portion: &[(String, Dialogue)]| -> Result<Vec<Ranked>> {
        portion.iter().map(|(id, dialogue)| rank_one(id, dialogue, reranker)).collect()
    };
    let mut work = Lines { inputs: left_out, portion: PORTION, make, path: &path };
    folder.complete(step, &mut work, observe)?;
    Ok(jsonl::open(folder.root.join(path))?.records().collect::<sporran_kilt::Result<_>>()?)
}

/// The precision, device and batch size of the rerankers of a cross-validation.
pub(super) const COMPUTING: Computing = Computing {
    precision: Precision::F32,
    device: sporran_transformers::DeviceName::Cpu,
    batch_tokens: 2048,
};

/// Makes a reranker in `folder/model`. Returns the number of optimiser steps.
fn fit(
    options: &SelectionOptions,
    dialogues: &[&(String, Dialogue)],
    original: &Dialogues,
    folder: &Path,
    observe: &mut Observer<'_>,
) -> Result<u64> {
    let chosen = sampled(dialogues.len(), options.data.limit, options.seed);
    let selections: Vec<Selection> = chosen
        .into_iter()
        .map(|at| Selection::new(&dialogues[at].0, &dialogues[at].1, options.data.labels))
        .chain(original.0.iter().map(|(id, dialogue)| Selection::new(id, dialogue, Labels::Gold)))
        .collect();
    let staged = StagedFolder::create(folder.join("model"))?;
    let steps = make(options, &selections, (folder, &staged.path()), observe)?;
    staged.commit()?;
    Ok(steps)
}

/// Makes the files of a reranker in `model`.
fn make(
    options: &SelectionOptions,
    selections: &[Selection],
    (folder, model): (&Path, &Path),
    observe: &mut Observer<'_>,
) -> Result<u64> {
    match &options.training {
        RerankerTraining::TfIdf(_) => {
            tfidf(selections, false, model)?;
            Ok(0)
        }
        RerankerTraining::Cosine(EncoderOptions { from, max_tokens }) => {
            let below = similarities(options, (from, *max_tokens), selections, model)?;
            if below.is_empty() {
                cosine(from, *max_tokens, model)?;
                return Ok(0);
            }
            let weights = listwise_weights(&standardised(&below, model, selections)?, selections);
            tracing::info!(?below, ?weights, "similarities");
            Saved::Combined { parts: weighted(below, weights).collect() }.write(model)?;
            Ok(0)
        }
        RerankerTraining::MaskedLm(MaskedLmOptions(tuned)) => {
            masked_lm(options, tuned, selections, (folder, model), observe)
        }
        RerankerTraining::CrossEncoder(tuned) | RerankerTraining::BiEncoder(tuned) => {
            let encoder = (tuned.from.as_path(), Some(tuned.max_tokens));
            let below = similarities(options, encoder, selections, model)?;
            if below.is_empty() {
                return trained(options, tuned, selections, None, (folder, model), observe);
            }
            let scores = standardised(&below, model, selections)?;
            let weights = listwise_weights(&scores, selections);
            tracing::info!(?below, ?weights, "similarities");
            let offsets = summed(&scores, &weights);
            let own = model.join(TRAINED);
            let steps = trained(options, tuned, selections, Some(offsets), (folder, &own), observe)?;
            // The model was trained with the offsets, so its scores are not standardised.
            let weight = match options.training {
                RerankerTraining::BiEncoder(_) => tuned.scale as f32,
                _ => 1.0,
            };
            let mut parts = vec![SavedPart {
                folder: TRAINED.into(),
                view: QueryView::default(),
                weight,
                standardised: false,
            }];
            parts.extend(weighted(below, weights));
            Saved::Combined { parts }.write(model)?;
            Ok(steps)
        }
    }
}

/// The folder of the trained model, next to those of the similarities.
const TRAINED: &str = "trained";

/// The similarities with their trained weights.
fn weighted(below: Vec<Similarity>, weights: Vec<f64>) -> impl Iterator<Item = SavedPart> {
    let part = |(Similarity { folder, view }, weight): (Similarity, f64)| SavedPart {
        folder: folder.into(),
        view,
        weight: weight as f32,
        standardised: true,
    };
    below.into_iter().zip(weights).map(part)
}

/// Writes the rerankers of `[combine]` into folders in `model`, and returns their similarities.
fn similarities(
    options: &SelectionOptions,
    (from, max_tokens): (&Path, Option<usize>),
    selections: &[Selection],
    model: &Path,
) -> Result<Vec<Similarity>> {
    let combine = &options.combine;
    let part = |name: &str| {
        let part = model.join(name);
        fs::create_dir_all(&part).map_err(Error::io(&part, "create"))?;
        Ok::<_, Error>(part)
    };
    let mut made = Vec::new();
    // The whole dialogue, then its last turns.
    let sources = || {
        std::iter::once(QuerySource::Query)
            .chain(combine.turns.iter().map(|&count| QuerySource::LastTurns(count)))
    };
    let pools = || {
        [None, Some(PagePool::Best), Some(PagePool::Mean)]
            .into_iter()
            .filter(|pool| pool.is_none() || combine.article)
    };
    if combine.tfidf {
        tfidf(selections, false, &part("tfidf")?)?;
        made.extend(views("tfidf", sources(), pools));
    }
    if combine.title {
        tfidf(selections, true, &part("title")?)?;
        made.extend(views("title", sources(), || std::iter::once(None)));
    }
    if combine.cosine {
        cosine(from, max_tokens, &part("cosine")?)?;
        made.extend(views("cosine", sources(), pools));
        if combine.central {
            made.push(Similarity {
                folder: "cosine",
                view: QueryView { source: QuerySource::Passages, pool: None },
            });
        }
    }
    for (folder, wanted, saved) in
        [("named", combine.named, Saved::TitleMatch), ("place", combine.place, Saved::PositionPrior)]
    {
        if wanted {
            saved.write(&part(folder)?)?;
            made.push(Similarity { folder, view: QueryView::default() });
        }
    }
    Ok(made)
}

/// The similarities of a reranker: each source with each pooling.
fn views<P: Iterator<Item = Option<PagePool>>>(
    folder: &'static str,
    sources: impl Iterator<Item = QuerySource>,
    pools: impl Fn() -> P,
) -> Vec<Similarity> {
    sources
        .flat_map(|source| pools().map(move |pool| Similarity { folder, view: QueryView { source, pool } }))
        .collect()
}

fn tfidf(selections: &[Selection], titles_only: bool, model: &Path) -> Result<()> {
    let texts: Vec<String> = selections
        .iter()
        .flat_map(|selection| {
            let sentences = selection.passages.iter().map(passage_text);
            std::iter::once(selection.query.text.clone()).chain(sentences)
        })
        .collect();
    TfIdf::fit(texts.iter().map(String::as_str)).save(&model.join(COUNTS))?;
    Ok(Saved::TfIdf { titles_only }.write(model)?)
}

/// Copies the folder of an encoder, so that the reranker does not depend on it.
fn cosine(from: &Path, max_tokens: Option<usize>, model: &Path) -> Result<()> {
    copy(from, model)?;
    Ok(Saved::Cosine { max_tokens }.write(model)?)
}

/// Copies the files of a model's folder and of its folders with a `config.json`.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(Error::io(to, "create"))?;
    for entry in fs::read_dir(from).map_err(Error::io(from, "read"))? {
        let entry = entry.map_err(Error::io(from, "read"))?;
        let (path, name) = (entry.path(), entry.file_name());
        let is_hidden = name.to_string_lossy().starts_with('.');
        if path.is_dir() && path.join("config.json").is_file() {
            copy(&path, &to.join(&name))?;
        } else if path.is_file() && !is_hidden {
            fs::copy(&path, to.join(&name)).map_err(Error::io(&path, "copy"))?;
        }
    }
    Ok(())
}

/// Runs a training in `folder/training` and writes its best weights into `model`.
fn run<O: Objective>(
    objective: &O,
    encoder: &TunedEncoder,
    options: &TrainingOptions,
    evaluate: Option<Evaluate<'_>>,
    extra_files: &[(String, Vec<u8>)],
    (folder, model): (&Path, &Path),
    observe: &mut Observer<'_>,
) -> Result<u64> {
    let (variables, folder, dtype) = (encoder.variables(), folder.join("training"), DType::F32);
    let session = TrainingSession { variables, options, folder, model, dtype, extra_files, score: "map@5" };
    Ok(session.run(objective, evaluate, observe)?.steps)
}

fn input(checkpoint: &Checkpoint, encoder: &TunedEncoder, max_tokens: usize) -> Result<EncoderInput> {
    let length = encoder.config().max_input_length();
    Ok(EncoderInput::open(checkpoint, length, Some(max_tokens), Truncation::FirstAtItsStart)?)
}

fn masked_lm(
    options: &SelectionOptions,
    tuned: &TunedOptions,
    selections: &[Selection],
    (folder, model): (&Path, &Path),
    observe: &mut Observer<'_>,
) -> Result<u64> {
    let checkpoint = Checkpoint::open(&tuned.from)?;
    let encoder =
        TunedEncoder::open(&checkpoint, BertTask::MaskedLm, 1, options.seed, &tuned.device.open()?)?;
    let input = input(&checkpoint, &encoder, tuned.max_tokens)?;
    let tokenizer = checkpoint.tokenizer()?;
    // Texts of several dialogues are used once.
    let mut texts: Vec<String> = selections
        .iter()
        .flat_map(|selection| {
            let sentences = selection.passages.iter().map(passage_text);
            std::iter::once(selection.query.text.clone()).chain(sentences)
        })
        .collect();
    texts.sort_unstable();
    texts.dedup();
    let texts: Vec<Text<'_>> = texts.iter().map(|text| Text::One(text)).collect();
    let rows = input.rows(&texts)?;
    let objective =
        MaskedLmObjective::new(&encoder, rows, MaskingTokens::of(&tokenizer)?, &optimizer(options, tuned))?;
    let files = encoder_files(&checkpoint, encoder.config())?;
    let optimizer = optimizer(options, tuned);
    let steps = run(&objective, &encoder, &optimizer, None, &files, (folder, model), observe)?;
    Saved::Cosine { max_tokens: Some(tuned.max_tokens) }.write(model)?;
    Ok(steps)
}

/// The optimiser's options, under the config's seed.
fn optimizer(options: &SelectionOptions, tuned: &TunedOptions) -> TrainingOptions {
    TrainingOptions { seed: options.seed, ..tuned.optimizer.clone() }
}

/// Trains the cross-encoder or bi-encoder of the config, and writes it into `model`.
fn trained(
    options: &SelectionOptions,
    tuned: &TunedOptions,
    selections: &[Selection],
    offsets: Option<Vec<Vec<f32>>>,
    (folder, model): (&Path, &Path),
    observe: &mut Observer<'_>,
) -> Result<u64> {
    let checkpoint = Checkpoint::open(&tuned.from)?;
    let device = tuned.device.open()?;
    let compares = matches!(options.training, RerankerTraining::BiEncoder(_));
    let task = if compares { BertTask::States } else { BertTask::SequenceClassification };
    let encoder = TunedEncoder::open(&checkpoint, task, 1, options.seed, &device)?;
    let input = input(&checkpoint, &encoder, tuned.max_tokens)?;
    let (mut training, mut validation) = (Vec::new(), Vec::new());
    for (at, selection) in selections.iter().enumerate() {
        let (query, rows) = rows(&input, selection, compares)?;
        let offsets = offsets.as_ref().map_or_else(Vec::new, |offsets| offsets[at].clone());
        let query = RankingQuery { query, rows, targets: selection.targets.clone(), offsets };
        let every = options.data.validation_every;
        if every > 0 && at % every == every - 1 { validation.push(query) } else { training.push(query) }
    }
    let optimizer = optimizer(options, tuned);
    let (loss, candidates) = (tuned.loss, tuned.candidates);
    let objective = if compares {
        RankingObjective::of_vectors(&encoder, tuned.scale, training, loss, candidates, &optimizer)?
    } else {
        RankingObjective::new(&encoder, training, loss, candidates, &optimizer)?
    };
    let evaluate = || {
        mean_precision(&encoder, tuned.scale, &validation, options.data.threshold)
            .map_err(EvaluationError::from)
    };
    let files = encoder_files(&checkpoint, encoder.config())?;
    let evaluate = (!validation.is_empty()).then_some(&evaluate as Evaluate<'_>);
    let steps = run(&objective, &encoder, &optimizer, evaluate, &files, (folder, model), observe)?;
    let (max_tokens, truncation) = (Some(tuned.max_tokens), Truncation::FirstAtItsStart);
    let saved =
        if compares { Saved::Cosine { max_tokens } } else { Saved::CrossEncoder { max_tokens, truncation } };
    saved.write(model)?;
    Ok(steps)
}

/// The token rows of pairs of the context and each sentence; or if `apart`, the row of the context and those of sentences.
fn rows(
    input: &EncoderInput,
    selection: &Selection,
    apart: bool,
) -> Result<(Option<EncoderRow>, Vec<EncoderRow>)> {
    let context = selection.query.text.as_str();
    let sentences: Vec<String> = selection.passages.iter().map(passage_text).collect();
    if !apart {
        let pairs: Vec<Text<'_>> = sentences.iter().map(|sentence| Text::Pair(context, sentence)).collect();
        return Ok((None, input.rows(&pairs)?));
    }
    let sentences: Vec<Text<'_>> = sentences.iter().map(|sentence| Text::One(sentence)).collect();
    Ok((input.rows(&[Text::One(context)])?.pop(), input.rows(&sentences)?))
}

/// The mean average precision at 5 over the validation dialogues with a relevant sentence.
fn mean_precision(
    encoder: &TunedEncoder,
    scale: f64,
    validation: &[RankingQuery],
    threshold: f64,
) -> Result<f64> {
    let mut found = Vec::new();
    for query in validation {
        let scores: Vec<f32> = match &query.query {
            Some(own) => {
                encoder.cosines(own, &query.rows)?.into_iter().map(|score| score * scale as f32).collect()
            }
            None => encoder.scores(&query.rows, 4096)?,
        };
        let candidates: Vec<Candidate> = scores
            .into_iter()
            .zip(&query.targets)
            .enumerate()
            .map(|(at, (score, target))| (at, score + query.offsets.get(at).unwrap_or(&0.0), target))
            .map(|(at, score, target)| Candidate {
                id: format!("{at:04}").into(),
                // Rounds the f32 to the decimal of the file, so that 0.6 is not below the threshold 0.6.
                confidence: (f64::from(*target) * 1e6).round() / 1e6,
                score: score.into(),
            })
            .collect();
        found.extend(score(&candidates, threshold).map(|scores| scores.map_at_5));
    }
    Ok(found.iter().sum::<f64>() / found.len().max(1) as f64)
}
