//! Comparison of runs with each other and with published results: the headline tables of the KILT paper (2 to 4), its tables
//! of single datasets (7 to 17), the sizes of the systems (5), and the costs of the runs; and the tables of the papers of KoRC and
//! KnowledgeNet.
//! [`responses`]: comparison by people.

mod appendix;
mod facts;
mod judged;
mod notes;
mod page;
mod published;
mod published_appendix;
mod questions;
pub mod responses;
mod size;
mod tables;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sporran_kilt::{
    Dataset, Metric, Split, jsonl,
    scores::{
        PerRecord, kilt, retrieval,
        significance::{Rounds, compare},
        trec::Evaluation,
        whole,
    },
};

use crate::{
    Error, Result,
    config::Config as _,
    run_dir::folder::file_of_run,
    tasks::{
        files::{TaskFile, task_files},
        options::TasksOptions,
    },
    workflows::answer::{
        Options,
        report::{Report, Scores},
    },
};

pub use appendix::{DatasetRow, DatasetTable};
pub use facts::{FactComparison, FactRun, compare_facts};
pub use questions::{QuestionComparison, QuestionScores, QuestionSystem, compare_questions};
pub use size::{PublishedSize, Size};
pub use tables::Form;

/// The depths of recall.
const DEPTHS: [usize; 5] = [1, 2, 5, 10, 20];
/// The p-value below which a difference is significant.
const SIGNIFICANT: f64 = 0.05;

/// A table of the KILT paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
    /// Answers, by the headline score of each dataset.
    Downstream,
    /// Pages, by R-precision.
    Retrieval,
    /// Answers with correct pages.
    Kilt,
}

impl Table {
    /// All tables, in the order of the paper.
    pub const ALL: [Self; 3] = [Self::Downstream, Self::Retrieval, Self::Kilt];

    /// The title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Downstream => "Downstream",
            Self::Retrieval => "Page-level R-precision",
            Self::Kilt => "KILT scores",
        }
    }
}

/// A comparison of runs.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The runs, in the given order. Differences are relative to the first one.
    pub systems: Vec<System>,
    /// The tables of single datasets.
    pub appendix: Vec<DatasetTable>,
    /// What could not be tested and why, and files that were changed since a run.
    pub notes: Vec<String>,
    /// The source of the published rows.
    pub published: &'static str,
    /// The published sizes.
    pub published_sizes: &'static [PublishedSize],
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct System {
    /// The name.
    pub name: String,
    /// The folder.
    pub run: PathBuf,
    /// The task files.
    pub tasks: Vec<Task>,
    /// The costs.
    pub cost: Cost,
    /// The size.
    pub size: Size,
}

/// A task file of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Task {
    /// The dataset, or the file name if it has no dataset.
    pub name: String,
    /// The dataset, by the file name.
    pub dataset: Option<Dataset>,
    /// The split, by the file name.
    pub split: Option<Split>,
    /// The number of records.
    pub records: usize,
    /// The headline score.
    pub metric: Metric,
    /// The headline score of the answers, from 0 to 1.
    pub answer: Option<Score>,
    /// The headline score of answers with correct pages.
    pub kilt: Option<Score>,
    /// R-precision over pages.
    pub r_precision: Option<Score>,
    /// Recall at the depths that the predictions reach; empty without gold evidence.
    pub recall: Vec<(usize, f64)>,
    /// The scores of pages and answers from 0 to 1, under the names of `sporran evaluate kilt`; empty without gold. The headline
    /// scores only, if the gold file is missing now.
    pub scores: BTreeMap<String, f64>,
    /// The measures of judged queries, by the names of `evaluation.measures`.
    pub measures: BTreeMap<String, Score>,
    /// The duration in seconds; `None` for predictions of an earlier process.
    pub seconds: Option<f64>,
    /// The number of records that were answered in that time.
    pub answered: usize,
    /// The number of tokens that were generated in that time.
    pub tokens: usize,
}

/// A mean score, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// The mean.
    pub mean: f64,
    /// The mean difference from the first run on the same records, and its p-value. `None` for the first run,
    /// and if records or gold answers are missing or differ.
    pub difference: Option<(f64, f64)>,
}

impl Score {
    /// `+` or `-` where the difference from the first run is significant.
    pub fn mark(&self) -> &'static str {
        match self.difference {
            Some((difference, p)) if p < SIGNIFICANT && difference > 0.0 => "+",
            Some((difference, p)) if p < SIGNIFICANT && difference < 0.0 => "-",
            _ => "",
        }
    }
}

/// The costs of a run, in the process that finished it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// The duration of all task files in seconds, without loading; 0 if it is not known, as in a merged run.
    pub seconds: f64,
    /// The number of records that were answered in that time.
    pub records: usize,
    /// The number of tokens that were generated in that time.
    pub tokens: usize,
    /// The peak memory of the process in bytes; 0 if the system did not report it.
    pub peak_memory_bytes: u64,
    /// The number of threads.
    pub threads: usize,
}

impl Cost {
    /// Records per second; none without answered records.
    pub fn records_per_second(&self) -> Option<f64> {
        (self.records > 0 && self.seconds > 0.0).then(|| self.records as f64 / self.seconds)
    }

    /// Generated tokens per second, including the time of retrieval; none without generated tokens.
    pub fn tokens_per_second(&self) -> Option<f64> {
        (self.tokens > 0 && self.seconds > 0.0).then(|| self.tokens as f64 / self.seconds)
    }
}

/// The fields of `manifest.json` that are used.
#[derive(Deserialize)]
struct Manifest {
    /// Manifests of older versions may lack inputs and parts.
    #[serde(default)]
    inputs: BTreeMap<PathBuf, String>,
    #[serde(default)]
    parts: Vec<size::Part>,
    tasks: Vec<ManifestTask>,
    seconds: Vec<Step>,
    peak_memory_bytes: u64,
    threads: usize,
}

#[derive(Deserialize)]
struct ManifestTask {
    predictions: PathBuf,
    /// Manifests of older versions have neither.
    #[serde(default)]
    answered: usize,
    #[serde(default)]
    tokens: usize,
    reused: bool,
}

#[derive(Deserialize)]
struct Step {
    step: String,
    seconds: f64,
}

/// The scores of the records of a task file.
struct Records {
    report: kilt::Report,
    answers: PerRecord,
    recall: Vec<(usize, f64)>,
}

/// The task files of a run. Reads `[tasks]` alone, because other tables of an older run can have keys that are unknown now.
fn task_files_of(run: &Path) -> Option<Vec<TaskFile>> {
    let config: toml::Table = config_of(run).ok()?;
    let tasks: TasksOptions = config.get("tasks")?.clone().try_into().ok()?;
    task_files(&tasks, "tasks").ok()
}

/// What runs are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// Answers and evidence: [`compare_runs`].
    Answers,
    /// KoRC's questions, the workflow `kbqa`: [`compare_questions`].
    Questions,
    /// Facts, the workflow `population`: [`compare_facts`].
    Facts,
}

/// What runs are compared by, from their manifests.
///
/// # Errors
/// [`sporran_kilt::Error::Argument`] for runs of which some are compared by something else, and for other workflows.
pub fn kind_of_runs(runs: &[PathBuf]) -> Result<RunKind> {
    #[derive(Default, Deserialize)]
    struct Workflow {
        workflow: String,
    }
    let kind = |run: &PathBuf| {
        // Manifests of older versions have no workflow, and the comparison of answers reports a missing one.
        let manifest: Workflow = jsonl::read_json(run.join("manifest.json")).unwrap_or_default();
        match &*manifest.workflow {
            "kbqa" => Ok((RunKind::Questions, manifest.workflow)),
            "population" => Ok((RunKind::Facts, manifest.workflow)),
            "" => Ok((RunKind::Answers, manifest.workflow)),
            name if Options::WORKFLOWS.contains(&name) => Ok((RunKind::Answers, manifest.workflow)),
            other => Err(Error::Kilt(sporran_kilt::Error::Argument(format!(
                "{}: expected a run of the workflows `answer`, `kbqa` or `population`, found one of `{other}`",
                run.display()
            )))),
        }
    };
    let kinds: Vec<_> = runs.iter().map(kind).collect::<Result<_>>()?;
    let Some((first, _)) = kinds.first() else { return Ok(RunKind::Answers) };
    let is_mixed = kinds.iter().any(|(kind, _)| kind != first);
    if let Some((_, workflow)) = kinds.iter().find(|(kind, _)| is_mixed && *kind != RunKind::Answers) {
        let count = kinds.iter().filter(|(_, other)| other == workflow).count();
        let message = format!("expected runs of one workflow, found {count} of `{workflow}` and others");
        return Err(Error::Kilt(sporran_kilt::Error::Argument(message)));
    }
    Ok(*first)
}

/// The config that a run keeps in its folder.
fn config_of<T: DeserializeOwned>(run: &Path) -> Result<T> {
    let path = run.join("config.toml");
    toml::from_str(&jsonl::read_to_string(&path)?).map_err(|error| {
        Error::io(&path, "read")(std::io::Error::new(std::io::ErrorKind::InvalidData, error))
    })
}

/// Compares the folders of finished runs with the first one.
///
/// # Errors
/// [`Error::Unfinished`] for an unfinished run; [`Error::NotARun`] for other folders; errors of files and of scoring.
pub fn compare_runs(runs: &[PathBuf], rounds: Rounds) -> Result<Comparison> {
    let mut systems: Vec<System> = Vec::new();
    let mut first: Vec<(String, Records)> = Vec::new();
    let mut first_judged: Vec<(String, Evaluation)> = Vec::new();
    let mut notes = Vec::new();
    // The runs and task files whose records could not be read again.
    let mut unread: Vec<(PathBuf, String)> = Vec::new();
    for run in runs {
        let report: Report = jsonl::read_json(file_of_run(run, "report.json")?)?;
        let manifest: Manifest = jsonl::read_json(file_of_run(run, "manifest.json")?)?;
        // The task files may be missing now. The report still has the means.
        let files = task_files_of(run).unwrap_or_default();
        let is_first = systems.is_empty();
        let mut tasks = Vec::new();
        for task in &report.tasks {
            let records = match &task.scores {
                Some(_) => records(run, &task.file, &files)?,
                None => None,
            };
            let of = |column: &str, mean: f64| -> Result<Score> {
                let known = first.iter().find(|(file, _)| *file == task.file);
                let difference = match (&records, known.filter(|_| !is_first)) {
                    (Some(own), Some((_, known))) => {
                        let (own, known) = (&own.answers, &known.answers);
                        match (own.ids() == known.ids(), own.column(column), known.column(column)) {
                            (true, Some(own), Some(known)) => {
                                let found = compare(&own, &known, rounds)?;
                                Some((found.difference.mean, found.p_value))
                            }
                            _ => None,
                        }
                    }
                    _ => None,
                };
                Ok(Score { mean, difference })
            };
            if let (Some(scores), Some(records)) = (task.scores, &records) {
                notes.extend(notes::changed(run, task, scores, records));
            }
            let judged = judged::evaluate(run, task, &files)?;
            let name = task.dataset.map_or_else(|| task.file.clone(), |dataset| dataset.stem().to_owned());
            if (task.scores.is_some() && records.is_none()) || (!task.measures.is_empty() && judged.is_none())
            {
                unread.push((run.clone(), name.clone()));
            }
            let known = first_judged.iter().find(|(file, _)| *file == task.file).map(|(_, known)| known);
            let measures = judged::measures(task, judged.as_ref(), known, rounds)?;
            let key = task.metric.key();
            let scores = task.scores;
            let entry = manifest
                .tasks
                .iter()
                .find(|entry| entry.predictions.file_name().is_some_and(|name| *name == *task.file));
            let answered = entry.filter(|entry| !entry.reused);
            let step = manifest.seconds.iter().find(|step| step.step == task.file);
            tasks.push(Task {
                name,
                dataset: task.dataset,
                split: Dataset::from_file_name(&task.file).map(|(_, split)| split),
                records: task.records,
                metric: task.metric,
                answer: scores.and_then(|scores| scores.answer).map(|mean| of(key, mean)).transpose()?,
                kilt: scores
                    .and_then(|scores| scores.kilt)
                    .map(|mean| of(&format!("KILT-{key}"), mean))
                    .transpose()?,
                r_precision: scores.map(|scores| of("Rprec", scores.r_precision)).transpose()?,
                recall: records.as_ref().map(|records| records.recall.clone()).unwrap_or_default(),
                scores: scores
                    .map(|scores| all_scores(scores, key, records.as_ref().map(|records| &records.report)))
                    .unwrap_or_default(),
                measures,
                seconds: step.filter(|_| answered.is_some()).map(|step| step.seconds),
                answered: answered.map_or(0, |entry| entry.answered),
                tokens: answered.map_or(0, |entry| entry.tokens),
            });
            if let Some(judged) = judged.filter(|_| is_first) {
                first_judged.push((task.file.clone(), judged));
            }
            if let Some(records) = records.filter(|_| is_first) {
                first.push((task.file.clone(), records));
            }
        }
        let Manifest { inputs, parts, peak_memory_bytes, threads, .. } = manifest;
        let cost = Cost {
            // `sum` of no values is -0.
            seconds: tasks.iter().filter_map(|task| task.seconds).fold(0.0, |sum, seconds| sum + seconds),
            records: tasks.iter().map(|task| task.answered).sum(),
            tokens: tasks.iter().map(|task| task.tokens).sum(),
            peak_memory_bytes,
            threads,
        };
        let size = Size::of(&inputs, &parts);
        let system = System { name: report.name, run: run.clone(), tasks, cost, size };
        if let Some(first) = systems.first() {
            notes.extend(notes::untested(first, &system, |system, task| {
                !unread.iter().any(|(run, name)| *run == system.run && *name == task.name)
            }));
        }
        systems.push(system);
    }
    if systems.is_empty() {
        let message = "expected at least one run to report on, found none".to_owned();
        return Err(Error::Kilt(sporran_kilt::Error::Argument(message)));
    }
    notes.extend(notes::means(&systems));
    let appendix = appendix::dataset_tables(&systems);
    Ok(Comparison {
        systems,
        appendix,
        notes,
        published: published::SOURCE,
        published_sizes: size::PUBLISHED,
    })
}

/// All scores of a task file: of its report in the run, and of its records where they were scored again. `key` is that of the
/// headline score.
fn all_scores(scores: Scores, key: &str, report: Option<&kilt::Report>) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::from([
        ("Rprec".to_owned(), scores.r_precision),
        ("recall@5".to_owned(), scores.recall_at_5),
    ]);
    all.extend(scores.answer.map(|answer| (key.to_owned(), answer)));
    all.extend(scores.kilt.map(|kilt| (format!("KILT-{key}"), kilt)));
    // A retrieval's predictions have no answers.
    if let Some(kilt::Report { downstream, kilt, .. }) = report.filter(|_| scores.answer.is_some()) {
        let figures = [
            ("accuracy", downstream.accuracy, kilt.accuracy),
            ("em", downstream.em, kilt.em),
            ("f1", downstream.f1, kilt.f1),
            ("rougel", downstream.rougel, kilt.rougel),
        ];
        for (name, answer, kilt) in figures {
            all.insert(name.to_owned(), answer);
            all.insert(format!("KILT-{name}"), kilt);
        }
    }
    all
}

/// Scores a task file of a run again, if its gold answers are available.
fn records(run: &Path, file: &str, files: &[TaskFile]) -> Result<Option<Records>> {
    let limited = run.join("work").join(format!("{file}.gold.jsonl"));
    let task = files.iter().find(|task| task.name == file);
    let gold = if limited.is_file() {
        limited
    } else {
        match task {
            Some(task) => task.gold.clone().unwrap_or_else(|| task.path.clone()),
            None => return Ok(None),
        }
    };
    let predictions = run.join("predictions").join(file);
    if !gold.is_file() || !predictions.is_file() {
        return Ok(None);
    }
    let options = retrieval::Options { ks: DEPTHS.to_vec(), ..retrieval::Options::default() };
    let found = whole::evaluate(&gold, &predictions, &options)?;
    // No recall at depths beyond the predictions.
    let held = found.evidence.depths.first().map_or(0, |depth| depth.max);
    let recall = found.evidence.reports.first().map(|(report, _)| {
        let at = |depth: &usize| Some((*depth, report.score(&format!("recall@{depth}"))?));
        DEPTHS.iter().filter(|&&depth| depth <= held).filter_map(at).collect()
    });
    let (report, answers) = (found.answers.report, found.answers.records);
    Ok(Some(Records { report, answers, recall: recall.unwrap_or_default() }))
}

impl Comparison {
    /// The task files of all runs: datasets in the order of the paper, then others by name.
    fn columns(&self) -> Vec<(String, Option<Dataset>)> {
        let mut columns: Vec<(String, Option<Dataset>)> = Vec::new();
        for task in self.systems.iter().flat_map(|system| &system.tasks) {
            if columns.iter().all(|(name, _)| *name != task.name) {
                columns.push((task.name.clone(), task.dataset));
            }
        }
        columns.sort_by_key(|(name, dataset)| (dataset.is_none(), *dataset, name.clone()));
        columns
    }
}

impl System {
    fn task(&self, name: &str) -> Option<&Task> {
        self.tasks.iter().find(|task| task.name == name)
    }

    fn score(&self, table: Table, name: &str) -> Option<Score> {
        let task = self.task(name)?;
        match table {
            Table::Downstream => task.answer,
            Table::Retrieval => task.r_precision,
            Table::Kilt => task.kilt,
        }
    }

    /// The mean of a table's scores over the task files that have one.
    fn mean(&self, table: Table) -> Option<f64> {
        let scores: Vec<f64> =
            self.tasks.iter().filter_map(|task| Some(self.score(table, &task.name)?.mean)).collect();
        (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    }
}
