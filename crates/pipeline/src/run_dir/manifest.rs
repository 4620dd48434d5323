//! What a run was made from and what it took: `manifest.json`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Instant, SystemTime},
};

use serde::Serialize;
use sporran_config::Override;
use sporran_kilt::jsonl;

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

/// Everything that one needs to know to make a run or a training again, and what it took.
#[derive(Clone, Debug, Serialize)]
pub struct Manifest {
    /// The program and its version.
    pub program: String,
    /// The config's workflow.
    pub workflow: &'static str,
    /// The config's name.
    pub name: String,
    /// The config's seed; none where the workflow draws nothing by chance.
    pub seed: Option<u64>,
    /// BLAKE3 of `config.toml`.
    pub config: String,
    /// BLAKE3 of every file that was read.
    pub inputs: BTreeMap<PathBuf, String>,
    /// Source, store, index and model.
    pub parts: Vec<PartHash>,
    /// Settings of models' folders in whose place the config sets others, by the config's keys.
    pub overrides: BTreeMap<String, Override>,
    /// Files that were answered and their predictions.
    pub tasks: Vec<TaskEntry>,
    /// How the training ended; none for a run.
    pub training: Option<TrainingEntry>,
    /// How long the steps took in this call of the program, in seconds.
    pub seconds: Vec<StepTime>,
    /// The most memory that the process held, in bytes; 0 where the system does not report it.
    pub peak_memory_bytes: u64,
    /// Threads that the work was spread over.
    pub threads: usize,
    /// When the work ended, in seconds since 1970.
    pub finished: u64,
}

/// A file that was answered and its predictions.
#[derive(Clone, Debug, Serialize)]
pub struct TaskEntry {
    /// The file.
    pub input: PathBuf,
    /// BLAKE3 of it.
    pub input_blake3: String,
    /// Its predictions, in the run's folder.
    pub predictions: PathBuf,
    /// BLAKE3 of them.
    pub predictions_blake3: String,
    /// Its other results, in the run's folder, with BLAKE3 of each.
    pub others: BTreeMap<PathBuf, String>,
    /// Records.
    pub records: usize,
    /// Records that were answered in this call of the program, and the tokens that were written for them.
    pub answered: usize,
    /// See `answered`.
    pub tokens: usize,
    /// Whether they were there from an earlier call of the program.
    pub reused: bool,
}

impl TaskEntry {
    /// The entry of a file, with its hash, whose results `outputs` are there, predictions first.
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

/// How a training ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrainingEntry {
    /// Steps, those before a kill included; passes over the data where the training counts these.
    pub steps: u64,
    /// The best validation score; none where nothing was scored.
    pub best: Option<f64>,
}

/// The manifest of work that is underway.
#[derive(Clone)]
pub(crate) struct Account {
    manifest: Manifest,
    since: Instant,
}

impl Account {
    /// Begins with what the config says.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where the config has no form in TOML.
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
            seconds: Vec::new(),
            peak_memory_bytes: 0,
            threads: rayon::current_num_threads(),
            finished: 0,
        };
        Ok(Self { manifest, since: Instant::now() })
    }

    /// Notes how long a step took: the time since the last one.
    pub(crate) fn took(&mut self, step: impl Into<String>) {
        let seconds = self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        self.manifest.seconds.push(StepTime { step: step.into(), seconds });
    }

    /// Notes what was read.
    pub(crate) fn read(&mut self, inputs: &Inputs) {
        self.manifest.inputs.extend(inputs.hashes());
    }

    /// Notes the hashes of parts.
    pub(crate) fn parts(&mut self, parts: &[PartHash]) {
        self.manifest.parts.extend_from_slice(parts);
    }

    /// Notes settings of models' folders that the config replaces.
    pub(crate) fn overrides(&mut self, overrides: BTreeMap<String, Override>) {
        self.manifest.overrides = overrides;
    }

    /// Notes a file that was answered.
    pub(crate) fn answered(&mut self, task: TaskEntry) {
        self.manifest.tasks.push(task);
    }

    /// Writes the manifest of a run, and removes the mark after that.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where the disk refuses.
    pub(crate) fn finish(self, folder: &RunDir, mark: Mark) -> Result<()> {
        self.write(&folder.root.join("manifest.json"))?;
        mark.finish()
    }

    /// Writes the manifest of a training. That of a run in the same folder stays.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where the disk refuses.
    pub(crate) fn finish_training(
        mut self,
        folder: &RunDir,
        mark: Mark,
        training: TrainingEntry,
    ) -> Result<()> {
        self.manifest.training = Some(training);
        self.write(&folder.root.join("training-manifest.json"))?;
        mark.finish()
    }

    fn write(mut self, path: &Path) -> Result<()> {
        self.manifest.peak_memory_bytes = peak_memory_bytes();
        self.manifest.finished = now();
        Ok(jsonl::write_json(path, &self.manifest)?)
    }
}

/// A step and its time.
#[derive(Clone, Debug, Serialize)]
pub struct StepTime {
    /// The step.
    pub step: String,
    /// Seconds.
    pub seconds: f64,
}

/// The most memory that this process held, in bytes; 0 where the system does not report it.
pub fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
