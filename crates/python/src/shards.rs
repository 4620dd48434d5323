//! Shards of verbs, and their merge.

use std::path::PathBuf;

use pyo3::prelude::*;
use sporran_kilt::folder::Shard;
use sporran_pipeline::{
    Config, IndexReport, Options, Outcome, ShardReport, registry,
    shards::{self, Indexing},
};

use crate::{
    calls::observed,
    error::{Result, argument},
    workflows::{Reports, with_then},
};

/// Does shard `index` of `of` of a verb: `index`, `run` or `populate`. Gives the folder of the shard.
#[pyfunction]
#[pyo3(signature = (verb, config, overrides, index, of, progress = None))]
pub(crate) fn shard(
    py: Python<'_>,
    verb: &str,
    config: PathBuf,
    overrides: Vec<String>,
    index: u32,
    of: u32,
    progress: Option<Py<PyAny>>,
) -> Result<PathBuf> {
    let shard = Shard::new(index, of).ok_or_else(|| {
        argument("shard", "a shard from 0 to the number of shards", format!("{index} of {of}"))
    })?;
    let ShardReport { folder, .. } = match verb {
        "index" => observed(py, progress, |observer| {
            let workflow = registry::workflow_of(&config, &overrides)?;
            if !Options::WORKFLOWS.contains(&workflow.name) {
                return Err(workflow.refusal(&config));
            }
            let options = Options::load_without_tasks(&config, &overrides)?;
            shards::index_shard(&options, Indexing::Everything, shard, observer)
        }),
        "run" => observed(py, progress, |observer| registry::run_shard(&config, &overrides, shard, observer)),
        "populate" => observed(py, progress, |observer| {
            registry::run_shard_as("population", &config, &overrides, shard, observer)
        }),
        other => Err(argument("verb", "index, run or populate", other)),
    }?;
    Ok(folder)
}

/// Merges the folders of all shards of a verb, and runs the configs that the config of a run names in `then`.
#[pyfunction]
#[pyo3(signature = (folders, progress = None))]
pub(crate) fn merge(py: Python<'_>, folders: Vec<PathBuf>, progress: Option<Py<PyAny>>) -> Result<Reports> {
    observed(py, progress, |observer| {
        let set = shards::find_shards(&folders)?;
        let outcome = if set.first().1.verb == "index" {
            let assembly = shards::merge_indexes(&set, None, observer)?;
            IndexReport::of(&assembly).as_ref().map_or_else(|| Ok(Outcome::default()), Outcome::of)?
        } else {
            shards::merge_runs(&set, None, observer)?
        };
        with_then(outcome, observer)
    })
}
