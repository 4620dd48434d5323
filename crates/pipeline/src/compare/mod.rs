//! Several runs beside each other and beside what was published: the KILT paper's three tables, and what the runs cost.

mod page;
mod published;
mod tables;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sporran_kilt::{
    Dataset, Metric, jsonl,
    scores::{
        PerRecord, retrieval,
        significance::{Rounds, compare},
        whole,
    },
};

use crate::{
    Error, Result,
    config::load::Config,
    run_dir::folder::check_finished,
    tasks::files::{TaskFile, task_files},
    workflows::answer::{options::Options, report::Report},
};

pub use tables::Form;

/// Depths of the ranking that recall is told at.
const DEPTHS: [usize; 5] = [1, 2, 5, 10, 20];
/// A difference is marked below this probability.
const SIGNIFICANT: f64 = 0.05;

/// One of the paper's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
    /// Answers, by each dataset's headline score.
    Downstream,
    /// Pages, by R-precision.
    Retrieval,
    /// Answers whose pages are right.
    Kilt,
}

impl Table {
    /// All of them, in the paper's order.
    pub const ALL: [Self; 3] = [Self::Downstream, Self::Retrieval, Self::Kilt];

    /// What it is called.
    pub fn title(self) -> &'static str {
        match self {
            Self::Downstream => "Downstream",
            Self::Retrieval => "Page-level R-precision",
            Self::Kilt => "KILT scores",
        }
    }
}

/// Runs that are compared.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The runs, in the order in which they were named. Differences are told from the first one.
    pub systems: Vec<System>,
    /// Where the published rows are from, which stand beside the runs' in every table.
    pub published: &'static str,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct System {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub run: PathBuf,
    /// Its task files.
    pub tasks: Vec<Task>,
    /// What it took.
    pub cost: Cost,
}

/// A task file of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Task {
    /// The dataset, or the file's name where it tells none.
    pub name: String,
    /// The dataset that its name tells.
    pub dataset: Option<Dataset>,
    /// Records.
    pub records: usize,
    /// The headline score.
    pub metric: Metric,
    /// The answers' headline score, 0 to 1.
    pub answer: Option<Score>,
    /// The same where the pages are right.
    pub kilt: Option<Score>,
    /// R-precision over pages.
    pub r_precision: Option<Score>,
    /// Recall at each of some depths of the ranking, as far as predictions go, where the gold is at hand.
    pub recall: Vec<(usize, f64)>,
    /// Seconds that answering took; nothing where its predictions were there already.
    pub seconds: Option<f64>,
    /// Records that were answered in that time, and the tokens that were written for them.
    pub answered: usize,
    /// See `answered`.
    pub tokens: usize,
}

/// A mean score, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// The mean.
    pub mean: f64,
    /// How it differs from the first run's on the same records: the mean difference, and the probability of one at least
    /// as great, were the two the same. Nothing for the first run, and where records or gold are not the same or not there.
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

/// What a run took, in the call of the program that finished it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Seconds of all task files that were answered then, loading left out.
    pub seconds: f64,
    /// Records that were answered in that time.
    pub records: usize,
    /// Tokens that were written for them.
    pub tokens: usize,
    /// The most memory that the process held, in bytes; 0 where the system did not tell.
    pub peak_memory_bytes: u64,
    /// Threads.
    pub threads: usize,
}

impl Cost {
    /// Records a second; nothing where none were answered.
    pub fn records_per_second(&self) -> Option<f64> {
        (self.records > 0 && self.seconds > 0.0).then(|| self.records as f64 / self.seconds)
    }

    /// Written tokens a second, retrieval and reading included; nothing where none were written.
    pub fn tokens_per_second(&self) -> Option<f64> {
        (self.tokens > 0 && self.seconds > 0.0).then(|| self.tokens as f64 / self.seconds)
    }
}

/// What is read of a `manifest.json`.
#[derive(Deserialize)]
struct Manifest {
    tasks: Vec<ManifestTask>,
    seconds: Vec<Step>,
    peak_memory_bytes: u64,
    threads: usize,
}

#[derive(Deserialize)]
struct ManifestTask {
    predictions: PathBuf,
    /// Manifests of before this was counted have neither.
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

/// The scores of every record of a task file.
struct Records {
    answers: PerRecord,
    recall: Vec<(usize, f64)>,
}

/// Reads the folders of finished runs and compares them with the first of them.
///
/// # Errors
/// [`Error::Unfinished`] where a run is not finished; where a folder is not a run's, and where predictions cannot be scored.
pub fn compare_runs(runs: &[PathBuf], rounds: Rounds) -> Result<Comparison> {
    let mut systems: Vec<System> = Vec::new();
    let mut first: Vec<(String, Records)> = Vec::new();
    for run in runs {
        check_finished(run)?;
        let report: Report = jsonl::read_json(run.join("report.json"))?;
        let manifest: Manifest = jsonl::read_json(run.join("manifest.json"))?;
        // A run's files may have gone since; its report still tells its means.
        let files = Options::parse(&run.join("config.toml"), &[])
            .and_then(|options| task_files(&options.general.tasks, "tasks"))
            .unwrap_or_default();
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
            let key = task.metric.key();
            let scores = task.scores;
            let entry = manifest
                .tasks
                .iter()
                .find(|entry| entry.predictions.file_name().is_some_and(|name| *name == *task.file));
            let answered = entry.filter(|entry| !entry.reused);
            let step = manifest.seconds.iter().find(|step| step.step == task.file);
            tasks.push(Task {
                name: task.dataset.map_or_else(|| task.file.clone(), |dataset| dataset.stem().to_owned()),
                dataset: task.dataset,
                records: task.records,
                metric: task.metric,
                answer: scores.and_then(|scores| scores.answer).map(|mean| of(key, mean)).transpose()?,
                kilt: scores
                    .and_then(|scores| scores.kilt)
                    .map(|mean| of(&format!("KILT-{key}"), mean))
                    .transpose()?,
                r_precision: scores.map(|scores| of("Rprec", scores.r_precision)).transpose()?,
                recall: records.as_ref().map(|records| records.recall.clone()).unwrap_or_default(),
                seconds: step.filter(|_| answered.is_some()).map(|step| step.seconds),
                answered: answered.map_or(0, |entry| entry.answered),
                tokens: answered.map_or(0, |entry| entry.tokens),
            });
            if let Some(records) = records.filter(|_| is_first) {
                first.push((task.file.clone(), records));
            }
        }
        let Manifest { peak_memory_bytes, threads, .. } = manifest;
        let cost = Cost {
            seconds: tasks.iter().filter_map(|task| task.seconds).sum(),
            records: tasks.iter().map(|task| task.answered).sum(),
            tokens: tasks.iter().map(|task| task.tokens).sum(),
            peak_memory_bytes,
            threads,
        };
        systems.push(System { name: report.name, run: run.clone(), tasks, cost });
    }
    if systems.is_empty() {
        let message = "expected at least one run to report on, found none".to_owned();
        return Err(Error::Kilt(sporran_kilt::Error::Argument(message)));
    }
    Ok(Comparison { systems, published: published::SOURCE })
}

/// Scores a task file of a run anew, where its gold is at hand.
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
    // Beyond what predictions hold there is no recall to tell.
    let held = found.evidence.depths.first().map_or(0, |depth| depth.max);
    let recall = found.evidence.reports.first().map(|(report, _)| {
        let at = |depth: &usize| Some((*depth, report.score(&format!("recall@{depth}"))?));
        DEPTHS.iter().filter(|&&depth| depth <= held).filter_map(at).collect()
    });
    Ok(Some(Records { answers: found.answers.records, recall: recall.unwrap_or_default() }))
}

impl Comparison {
    /// The task files of all runs: datasets in the order of the paper's tables, then others by name.
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
