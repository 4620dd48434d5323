//! Shards of a config's work, and their merge.
//!
//! A shard of a verb does one of several equal parts of the work in a folder of its own. The merge of all shards writes the
//! bytes that the verb writes without shards.

mod index;

use std::path::{Path, PathBuf};

pub use index::{Indexing, index_shard, index_vectors, merge_indexes};
use sporran_kilt::{
    folder::{Shard, ShardSet},
    observe::Observer,
};

use crate::{
    Result,
    run_dir::shard::ShardReport,
    workflows::{
        answer,
        registry::{named, workflow_of},
        workflow::{Merge, Outcome},
    },
};

/// Does a shard of `sporran run` for a config of any workflow that has shards.
///
/// # Errors
/// [`crate::Error::Config`] for a config of a workflow without shards; errors of the work.
pub fn run_shard(
    path: &Path,
    overrides: &[String],
    shard: Shard,
    observe: &mut Observer<'_>,
) -> Result<ShardReport> {
    workflow_of(path, overrides)?.shard(path, overrides, shard, observe)
}

/// Does a shard of `sporran populate`.
///
/// # Errors
/// [`crate::Error::Config`] for a config of another workflow; errors of the work.
pub fn populate_shard(
    path: &Path,
    overrides: &[String],
    shard: Shard,
    observe: &mut Observer<'_>,
) -> Result<ShardReport> {
    named("population", path, overrides)?.shard(path, overrides, shard, observe)
}

/// The shards in folders, each a shard or a folder of shards. Reads all results of the shards.
///
/// # Errors
/// [`sporran_kilt::Error::Shard`] for shards that are missing, doubled, stale, foreign or damaged.
pub fn find_shards(folders: &[PathBuf]) -> Result<ShardSet> {
    Ok(ShardSet::find(folders)?)
}

/// Merges shards of `run`, `retrieve` or `populate`. `output` is the parent folder of the run's folder, by default that of the
/// first shard's config.
///
/// # Errors
/// [`sporran_kilt::Error::Shard`] if an input has changed since the shards read it; errors of files.
pub fn merge_runs(set: &ShardSet, output: Option<&Path>, observe: &mut Observer<'_>) -> Result<Outcome> {
    let (folder, manifest) = set.first();
    let config = folder.join("config.toml");
    let overrides: Vec<String> = output.iter().map(|output| format!("output={}", output.display())).collect();
    let merge: Merge = match manifest.verb.as_str() {
        "retrieve" => answer::merge,
        _ => workflow_of(&config, &overrides)?.merge(&config)?,
    };
    merge(set, &config, &overrides, observe)
}
