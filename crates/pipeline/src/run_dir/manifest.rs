//! What a run was made from and what it took: `manifest.json`.

use std::{collections::BTreeMap, path::PathBuf, time::SystemTime};

use serde::Serialize;
use sporran_retriever::dense::Override;

use crate::source::store::PartHash;

/// Everything that one needs to know to make a run again, and what it took.
#[derive(Clone, Debug, Serialize)]
pub struct Manifest {
    /// The program and its version.
    pub program: String,
    /// The config's name.
    pub name: String,
    /// The config's seed.
    pub seed: u64,
    /// BLAKE3 of `config.toml`.
    pub config: String,
    /// Source, store, index and model.
    pub parts: Vec<PartHash>,
    /// Settings of models' folders in whose place the config sets others, by the config's keys.
    pub overrides: BTreeMap<String, Override>,
    /// Task files and their predictions.
    pub tasks: Vec<TaskEntry>,
    /// How long the steps took in this call of the program, in seconds.
    pub seconds: Vec<StepTime>,
    /// The most memory that the process held, in bytes; 0 where the system does not tell.
    pub peak_memory_bytes: u64,
    /// Threads that the work was spread over.
    pub threads: usize,
    /// When the run ended, in seconds since 1970.
    pub finished: u64,
}

/// A task file and its predictions.
#[derive(Clone, Debug, Serialize)]
pub struct TaskEntry {
    /// The task file.
    pub input: PathBuf,
    /// BLAKE3 of it.
    pub input_blake3: String,
    /// Its predictions, in the run's folder.
    pub predictions: PathBuf,
    /// BLAKE3 of them.
    pub predictions_blake3: String,
    /// Records.
    pub records: usize,
    /// Records that were answered in this call of the program, and the tokens that were written for them.
    pub answered: usize,
    /// See `answered`.
    pub tokens: usize,
    /// Whether they were there from an earlier call of the program.
    pub reused: bool,
}

/// A step and its time.
#[derive(Clone, Debug, Serialize)]
pub struct StepTime {
    /// The step.
    pub step: String,
    /// Seconds.
    pub seconds: f64,
}

/// The most memory that this process held, in bytes; 0 where the system does not tell.
pub fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
