//! The manifest of a run, `manifest.json`: its inputs and its costs.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Instant, SystemTime},
};

use serde::Serialize;
use sporran_config::Override;
use sporran_kilt::jsonl;
use sporran_remote::{Usage, usage, usage_since};
use sporran_training::session::Trained;

use crate::{
    Result,
    config::{Config, to_toml},
    run_dir::{
        folder::{Mark, RunDir},
        inputs::Inputs,
        step::Finished,
    },
    source::store::PartHash,
};

/// The information to reproduce a run or a training, and its costs.
#[derive(Clone, Debug, Serialize)]
pub struct Manifest {
    /// The program and its version.
    pub program: String,
    /// The config's workflow.
    pub workflow: &'static str,
    /// The name of the run.
    pub name: String,
    /// The seed of the config; `None` for a workflow without random choices.
    pub seed: Option<u64>,
    /// The BLAKE3 hash of `config.toml`.
    pub config: String,
    /// The BLAKE3 hashes of all input files.
    pub inputs: BTreeMap<PathBuf, String>,
    /// The hashes of source, store, index and model.
    pub parts: Vec<PartHash>,
    /// Settings of model folders that the config overrides, by the config's keys.
    pub overrides: BTreeMap<String, Override>,
    /// The answered files and their predictions.
    pub tasks: Vec<TaskEntry>,
    /// The result of the training; `None` for a run.
    pub training: Option<TrainingEntry>,
    /// The requests to endpoints in this process, with their tokens and cost; empty without endpoints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Usage>,
    /// The durations of the steps in this process, in seconds.
    pub seconds: Vec<StepTime>,
    /// The peak memory of the process in bytes; 0 if the system does not report it.
    pub peak_memory_bytes: u64,
    /// The number of threads.
    pub threads: usize,
    /// The end of the work, in seconds since 1970.
    pub finished: u64,
}

/// An answered file and its predictions.
#[derive(Clone, Debug, Serialize)]
pub struct TaskEntry {
    /// The file.
    pub input: PathBuf,
    /// The BLAKE3 hash of the file.
    pub input_blake3: String,
    /// The predictions, relative to the run's folder.
    pub predictions: PathBuf,
    /// The BLAKE3 hash of the predictions.
    pub predictions_blake3: String,
    /// The other results, relative to the run's folder, with their BLAKE3 hashes.
    pub others: BTreeMap<PathBuf, String>,
    /// The number of records.
    pub records: usize,
    /// The number of records that this process answered.
    pub answered: usize,
    /// The number of tokens that this process generated.
    pub tokens: usize,
    /// Whether the predictions are of an earlier process.
    pub reused: bool,
}

impl TaskEntry {
    /// The entry of a file with its hash. `outputs` are its results; the first is the predictions.
    pub(crate) fn new<S>(input: &Path, hash: String, outputs: Vec<PathBuf>, finished: &Finished<S>) -> Self {
        let mut others: Vec<(PathBuf, String)> =
            outputs.into_iter().zip(finished.hashes.iter().cloned()).collect();
        let first = if others.is_empty() { Default::default() } else { others.remove(0) };
        Self {
            input: input.to_owned(),
            input_blake3: hash,
            predictions: first.0,
            predictions_blake3: first.1,
            others: others.into_iter().collect(),
            records: finished.records,
            answered: finished.made,
            tokens: 0,
            reused: finished.reused,
        }
    }
}

/// The result of a training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrainingEntry {
    /// The number of steps, including those before a kill. Some trainings count epochs.
    pub steps: u64,
    /// The best validation score; `None` without validation.
    pub best: Option<f64>,
}

impl From<&Trained> for TrainingEntry {
    fn from(trained: &Trained) -> Self {
        Self { steps: trained.steps, best: trained.best.map(|(_, score)| score) }
    }
}

/// The manifest of work in progress.
#[derive(Clone)]
pub(crate) struct Account {
    manifest: Manifest,
    /// The requests to endpoints before the work.
    before: Vec<Usage>,
    since: Instant,
}

impl Account {
    /// Begins a manifest with the config.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if the config has no form in TOML.
    pub(crate) fn begin(options: &impl Config) -> Result<Self> {
        let config = to_toml(options)?;
        let table = toml::Table::try_from(options).map_err(crate::config::unwritable)?;
        let manifest = Manifest {
            program: concat!("sporran ", env!("CARGO_PKG_VERSION")).to_owned(),
            workflow: options.workflow(),
            name: table.get("name").and_then(toml::Value::as_str).unwrap_or_default().to_owned(),
            seed: table.get("seed").and_then(toml::Value::as_integer).and_then(|seed| seed.try_into().ok()),
            config: blake3::hash(config.as_bytes()).to_hex().to_string(),
            inputs: BTreeMap::new(),
            parts: Vec::new(),
            overrides: BTreeMap::new(),
            tasks: Vec::new(),
            training: None,
            endpoints: Vec::new(),
            seconds: Vec::new(),
            peak_memory_bytes: 0,
            threads: rayon::current_num_threads(),
            finished: 0,
        };
        Ok(Self { manifest, before: usage(), since: Instant::now() })
    }

    /// Records the duration of a step: the time since the previous one.
    pub(crate) fn took(&mut self, step: impl Into<String>) {
        let seconds = self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        self.manifest.seconds.push(StepTime { step: step.into(), seconds });
    }

    /// Records the inputs.
    pub(crate) fn read(&mut self, inputs: &Inputs) {
        self.manifest.inputs.extend(inputs.hashes());
    }

    /// Records the hashes of parts.
    pub(crate) fn parts(&mut self, parts: &[PartHash]) {
        self.manifest.parts.extend_from_slice(parts);
    }

    /// Records settings of model folders that the config overrides.
    pub(crate) fn overrides(&mut self, overrides: BTreeMap<String, Override>) {
        self.manifest.overrides = overrides;
    }

    /// Records an answered file.
    pub(crate) fn answered(&mut self, task: TaskEntry) {
        self.manifest.tasks.push(task);
    }

    /// Writes the manifest of a run, then removes the mark.
    ///
    /// # Errors
    /// [`crate::Error::Io`] for file system errors.
    pub(crate) fn finish(self, folder: &RunDir, mark: Mark) -> Result<()> {
        self.write(&folder.root.join("manifest.json"))?;
        folder.finished();
        mark.finish()
    }

    /// Writes the manifest of a training. Does not replace that of a run in the same folder.
    ///
    /// # Errors
    /// [`crate::Error::Io`] for file system errors.
    pub(crate) fn finish_training(
        mut self,
        folder: &RunDir,
        mark: Mark,
        training: TrainingEntry,
    ) -> Result<()> {
        self.manifest.training = Some(training);
        self.write(&folder.root.join("training-manifest.json"))?;
        folder.finished();
        mark.finish()
    }

    /// The manifest as it is now.
    pub(crate) fn so_far(&self) -> Manifest {
        let (endpoints, peak_memory_bytes) = (usage_since(&self.before), peak_memory_bytes());
        Manifest { endpoints, peak_memory_bytes, finished: now(), ..self.manifest.clone() }
    }

    fn write(self, path: &Path) -> Result<()> {
        Ok(jsonl::write_json(path, &self.so_far())?)
    }
}

/// A step and its time.
#[derive(Clone, Debug, Serialize)]
pub struct StepTime {
    /// The step.
    pub step: String,
    /// The duration in seconds.
    pub seconds: f64,
}

/// The peak memory of this process in bytes; 0 if the system does not report it.
pub fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
