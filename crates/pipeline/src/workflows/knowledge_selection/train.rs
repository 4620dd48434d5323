//! Training a reranker on annotated sentences.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sporran_kilt::{
    StagedFolder, counted, hash_json, jsonl,
    observe::{Event, Observer},
    scores::ranking::{Ranked, Report},
    wowpp::{self, Dialogue, Dialogues},
};
use sporran_reranker::{
    Computing, Reranker, Saved, open,
    training::{GradedQuery, RerankerSession},
};
use sporran_transformers::{DeviceName, Precision};

use super::{
    Threshold,
    data::{Labelling, Labels, folds, sampled},
    options::{DataOptions, SelectionOptions},
    rank::{rank, rank_one, write_ranking},
};
use crate::{
    Diagnostic, Error, Result,
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
    /// The scores of these rankings.
    pub scores: Option<Report>,
    /// The scores of the rankings of the test files, by the names of their keys: `test-unseen` and `test-seen`.
    pub tests: Vec<TestReport>,
    /// The smallest confidence of a relevant sentence.
    pub threshold: f64,
    /// Whether it is a third quartile.
    #[serde(skip)]
    is_third_quartile: bool,
    /// The number of optimiser steps over all folds.
    pub steps: u64,
    /// The number of training dialogues, the held-out ones of folds included.
    pub dialogues: usize,
    /// The kind of the rerankers, as `[reranker]` has it.
    pub kind: &'static str,
}

/// The scores of a trained reranker on a test file.
#[derive(Clone, Debug, Serialize)]
pub struct TestReport {
    /// The key of the file: `test-seen` or `test-unseen`.
    pub name: &'static str,
    /// The file with the rankings.
    pub ranking: PathBuf,
    /// The scores.
    pub scores: Report,
}

impl fmt::Display for TrainedReranker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "kind {}, {}, {}",
            self.kind,
            counted(self.dialogues as u64, "dialogue"),
            counted(self.steps, "step")
        )?;
        if self.is_third_quartile {
            write!(f, ", threshold {} (third quartile)", self.threshold)?;
        }
        if let ([model], None) = (&self.models[..], &self.ranking) {
            write!(f, "\nuse in a run: reranker.kind={} reranker.model={}", self.kind, model.display())?;
        }
        if let Some(ranking) = &self.ranking {
            write!(f, "\nranking: {}", ranking.display())?;
        }
        if let Some(scores) = &self.scores {
            write!(f, "\n{scores}")?;
        }
        self.tests.iter().try_for_each(|test| write!(f, "\n{}: {}", test.name, test.scores))
    }
}

/// Trains the reranker of a config on all dialogues, and ranks the test files. With folds, it trains a reranker on the other folds for each fold, and
/// ranks the fold's dialogues. A stopped training resumes from its newest checkpoint.
///
/// # Errors
/// Errors of files, models or training.
pub fn train(options: &SelectionOptions, observe: &mut Observer<'_>) -> Result<TrainedReranker> {
    // Several calls can train one fold each, and test files do not change the model.
    let without = ["data.fold", "data.test-seen", "data.test-unseen"];
    let mut underway = TrainingFolder::begin(options.folder(), options, &without)?.replacing(models(options));
    let dialogues = wowpp::load(&options.data.train)?;
    let original = options.data.original.as_ref().map(wowpp::load).transpose()?.unwrap_or_default();
    let fold_of = options.data.folds.map(|count| fold_of(&options.data, &dialogues, count, options.seed));
    let fold_of = fold_of.transpose()?;
    let mut tests = Vec::new();
    for (name, file) in options.data.tests() {
        tests.push((name, file, wowpp::load(file)?.0));
    }
    underway.verify()?;
    let folder = options.folder();
    let threshold = options.data.threshold.of(&dialogues)?;
    let mut outcome = TrainedReranker {
        dialogues: match options.data.folds {
            None => dialogues.0.len().min(options.data.limit.unwrap_or(usize::MAX)),
            Some(_) => dialogues.0.len(),
        },
        threshold,
        is_third_quartile: options.data.threshold == Threshold::ThirdQuartile,
        ..TrainedReranker::default()
    };
    let (Some(count), Some(fold_of)) = (options.data.folds, fold_of) else {
        let all: Vec<usize> = (0..dialogues.0.len()).collect();
        outcome.steps = fit(options, (&dialogues, &all), (&original, threshold), &folder, observe)?;
        outcome.models.push(folder.join("model"));
        outcome.kind = Saved::read(&folder.join("model"))?.kind();
        for (name, file, tested) in tests {
            let reranker = open(&folder.join("model"), COMPUTING)?;
            let path = PathBuf::from(format!("ranking-{name}.jsonl"));
            let ranked = match underway.folder() {
                Some(run) => {
                    let part = Part { name, model: "model".into(), file, output: path.clone() };
                    rank_part(options, (run, part), &tested, &*reranker, observe)?
                }
                None => {
                    let ranked = rank(&tested, &*reranker, observe)?;
                    write_ranking(&folder.join(&path), &ranked)?;
                    ranked
                }
            };
            let scores = Report::of(&ranked, threshold);
            outcome.tests.push(TestReport { name, ranking: folder.join(path), scores });
        }
        underway.finish(TrainingEntry { steps: outcome.steps, best: None })?;
        return Ok(outcome);
    };
    let mut ranked: Vec<(usize, Ranked)> = Vec::new();
    for fold in (0..count).filter(|fold| options.data.fold.is_none_or(|only| only == *fold)) {
        let folder = folder.join(format!("fold-{fold}"));
        let others: Vec<usize> = (0..fold_of.len()).filter(|at| fold_of[*at] != fold).collect();
        outcome.steps += fit(options, (&dialogues, &others), (&original, threshold), &folder, observe)?;
        let reranker = open(&folder.join("model"), COMPUTING)?;
        let own: Vec<usize> = (0..fold_of.len()).filter(|at| fold_of[*at] == fold).collect();
        let left_out: Vec<(String, Dialogue)> = own.iter().map(|&at| dialogues.0[at].clone()).collect();
        let found = match underway.folder() {
            Some(run) => {
                let name = format!("fold-{fold}");
                let model = PathBuf::from(&name).join("model");
                let output = PathBuf::from(&name).join("ranking.jsonl");
                let part = Part { name: &name, model, file: &options.data.train, output };
                rank_part(options, (run, part), &left_out, &*reranker, observe)?
            }
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
    outcome.scores = Some(Report::of(&ranked, threshold));
    let best = outcome.scores.as_ref().and_then(|report| report.scores.mrr_at_1.value());
    underway.finish(TrainingEntry { steps: outcome.steps, best })?;
    Ok(outcome)
}

/// The fold of each dialogue.
///
/// # Errors
/// [`Error::Config`] for more folds than conversations: a fold without dialogues has nothing to rank.
fn fold_of(data: &DataOptions, dialogues: &Dialogues, count: usize, seed: u64) -> Result<Vec<usize>> {
    let fold_of = folds(dialogues, count, seed);
    // Each fold is as large as another one, or has one conversation less.
    let filled = fold_of.iter().max().map_or(0, |last| last + 1);
    if filled == count {
        return Ok(fold_of);
    }
    let path = data.train.display();
    let message =
        format!("expected at most {filled}, as {path} has {filled} different conversations, found {count}");
    Err(Error::Config(vec![Diagnostic::of_config("data.folds", message)]))
}

/// The models that a training writes, relative to the run's folder.
fn models(options: &SelectionOptions) -> Vec<PathBuf> {
    let Some(count) = options.data.folds else { return vec!["model".into()] };
    let folds = (0..count).filter(|fold| options.data.fold.is_none_or(|only| only == *fold));
    folds.map(|fold| format!("fold-{fold}/model").into()).collect()
}

/// The number of dialogues in a portion.
const PORTION: usize = 32;

/// Dialogues that a trained reranker ranks: those of a fold, or of a test file.
struct Part<'a> {
    /// Its name, such as `fold-0`.
    name: &'a str,
    /// The folder of the reranker in that of the training.
    model: PathBuf,
    /// The file with the dialogues.
    file: &'a Path,
    /// The ranking in the folder of the training.
    output: PathBuf,
}

/// Ranks the dialogues of a part into its output. Resumes after the portions that are there.
fn rank_part(
    options: &SelectionOptions,
    (folder, part): (&RunDir, Part<'_>),
    dialogues: &[(String, Dialogue)],
    reranker: &dyn Reranker,
    observe: &mut Observer<'_>,
) -> Result<Vec<Ranked>> {
    let Part { name, model, file, output } = part;
    let mut inputs = Inputs::default();
    let content = inputs.file(file)?;
    let model = inputs.content(&folder.root.join(model))?;
    let key = StepKey::new("rank a fold", &options.data)?.input("seed", options.seed.to_string());
    let key = key.input("content", content).input("model", hash_json(&model));
    let step = FileStep {
        title: "rank sentences".into(),
        name: &format!("{name}.ranking"),
        key: key.input("portion", PORTION.to_string()),
        outputs: vec![output.clone()],
        inputs: &inputs,
    };
    let make = |_, portion: &[(String, Dialogue)]| -> Result<Vec<Ranked>> {
        portion.iter().map(|(id, dialogue)| rank_one(id, dialogue, reranker)).collect()
    };
    let mut work = Lines { inputs: dialogues, portion: PORTION, make, path: &output };
    folder.complete(step, &mut work, observe)?;
    Ok(jsonl::open(folder.root.join(output))?.records().collect::<sporran_kilt::Result<_>>()?)
}

/// The precision, device and batch size of the rerankers of a cross-validation.
const COMPUTING: Computing =
    Computing { precision: Precision::F32, device: DeviceName::Cpu, batch_tokens: 2048 };

/// Makes a reranker in `folder/model` from some dialogues of the training file. Returns the number of optimiser steps.
fn fit(
    options: &SelectionOptions,
    (dialogues, own): (&Dialogues, &[usize]),
    (original, threshold): (&Dialogues, f64),
    folder: &Path,
    observe: &mut Observer<'_>,
) -> Result<u64> {
    let data = &options.data;
    let chosen = sampled(own.len(), data.limit, options.seed);
    let labelling =
        Labelling { labels: data.labels, threshold, negatives: data.negatives, seed: options.seed };
    let query = |labels, file, at: usize, (id, dialogue): &(String, Dialogue)| {
        Labelling { labels, ..labelling }.query(id, dialogue, (file, at))
    };
    let mut queries: Vec<GradedQuery> =
        chosen.iter().filter_map(|&at| query(data.labels, 0, own[at], &dialogues.0[own[at]])).collect();
    if queries.len() < chosen.len() {
        let count = chosen.len() - queries.len();
        let text = format!("{count} of {} dialogues have no gold sentence and are not used", chosen.len());
        observe(Event::Note { text });
    }
    queries.extend(original.0.iter().enumerate().filter_map(|(at, own)| query(Labels::Gold, 1, at, own)));
    if queries.is_empty() && data.labels == Labels::Gold {
        let message = format!(
            "{}: expected dialogues with a `gold_sentence`, found none; `sporran convert gold` adds it",
            data.train.display()
        );
        return Err(sporran_kilt::Error::Argument(message).into());
    }
    let staged = StagedFolder::create(folder.join("model"))?;
    let (checkpoints, model) = (folder.join("training"), staged.path());
    let session = RerankerSession {
        queries: &queries,
        validation_every: options.data.validation_every,
        threshold,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_folds_than_conversations_are_refused() {
        let dialogue =
            |turn: &str| serde_json::json!({"turns": [turn], "topic": "x", "annotated_sentences": []});
        let dialogues = serde_json::json!({"a": dialogue("One"), "b": dialogue("One"), "c": dialogue("Two")});
        let dialogues: Dialogues = serde_json::from_value(dialogues).unwrap();
        let data: DataOptions = serde_json::from_value(serde_json::json!({"train": "d.json"})).unwrap();
        let folds = fold_of(&data, &dialogues, 2, 0).unwrap();
        assert!(folds[0] == folds[1] && folds[0] != folds[2], "{folds:?}");
        let error = fold_of(&data, &dialogues, 5, 0).unwrap_err().to_string();
        let expected =
            "config: `data.folds`: expected at most 2, as d.json has 2 different conversations, found 5";
        assert_eq!(error, expected);
    }
}
