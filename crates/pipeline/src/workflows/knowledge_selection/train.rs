//! Training a reranker on annotated sentences.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sporran_kilt::{
    StagedFolder, hash_json, jsonl,
    observe::Observer,
    scores::ranking::{Ranked, Report},
    wowpp::{self, Dialogue, Dialogues},
};
use sporran_reranker::{
    Computing, Reranker, Saved, open,
    training::{GradedQuery, RerankerSession},
};
use sporran_transformers::{DeviceName, Precision};

use super::{
    data::{Labels, folds, graded, sampled},
    options::SelectionOptions,
    rank::{rank, rank_one, write_ranking},
};
use crate::{
    Result,
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
    /// The number of training dialogues, the held-out ones of folds included.
    pub dialogues: usize,
    /// The kind of the rerankers, as `[reranker]` has it.
    pub kind: &'static str,
}

impl fmt::Display for TrainedReranker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kind {}, {} dialogues, {} steps", self.kind, self.dialogues, self.steps)?;
        if let ([model], None) = (&self.models[..], &self.ranking) {
            write!(f, "\nuse in a run: reranker.kind={} reranker.model={}", self.kind, model.display())?;
        }
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
    let mut underway =
        TrainingFolder::begin(options.folder(), options, &["data.fold"])?.replacing(models(options));
    let dialogues = wowpp::load(&options.data.train)?;
    let original = options.data.original.as_ref().map(wowpp::load).transpose()?.unwrap_or_default();
    underway.verify()?;
    let folder = options.folder();
    let mut outcome = TrainedReranker { dialogues: dialogues.0.len(), ..TrainedReranker::default() };
    let Some(count) = options.data.folds else {
        let all: Vec<&(String, Dialogue)> = dialogues.0.iter().collect();
        outcome.steps = fit(options, &all, &original, &folder, observe)?;
        outcome.models.push(folder.join("model"));
        outcome.kind = Saved::read(&folder.join("model"))?.kind();
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
        outcome.kind = Saved::read(&folder.join("model"))?.kind();
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

/// The models that a training writes, relative to the run's folder.
fn models(options: &SelectionOptions) -> Vec<PathBuf> {
    let Some(count) = options.data.folds else { return vec!["model".into()] };
    let folds = (0..count).filter(|fold| options.data.fold.is_none_or(|only| only == *fold));
    folds.map(|fold| format!("fold-{fold}/model").into()).collect()
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
const COMPUTING: Computing =
    Computing { precision: Precision::F32, device: DeviceName::Cpu, batch_tokens: 2048 };

/// Makes a reranker in `folder/model`. Returns the number of optimiser steps.
fn fit(
    options: &SelectionOptions,
    dialogues: &[&(String, Dialogue)],
    original: &Dialogues,
    folder: &Path,
    observe: &mut Observer<'_>,
) -> Result<u64> {
    let chosen = sampled(dialogues.len(), options.data.limit, options.seed);
    let queries: Vec<GradedQuery> = chosen
        .into_iter()
        .map(|at| graded(&dialogues[at].0, &dialogues[at].1, options.data.labels))
        .chain(original.0.iter().map(|(id, dialogue)| graded(id, dialogue, Labels::Gold)))
        .collect();
    let staged = StagedFolder::create(folder.join("model"))?;
    let (checkpoints, model) = (folder.join("training"), staged.path());
    let session = RerankerSession {
        queries: &queries,
        validation_every: options.data.validation_every,
        threshold: options.data.threshold,
        combine: &options.combine,
        seed: options.seed,
        checkpoints: &checkpoints,
        model: &model,
        computing: COMPUTING,
    };
    let steps = options.training.train(&session, observe)?;
    staged.commit()?;
    Ok(steps)
}
