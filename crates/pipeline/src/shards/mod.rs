//! Shards of a config's work, and their merge.
//!
//! A shard of a verb does one of several equal parts of the work in a folder of its own. The merge of all shards writes the
//! bytes that the verb writes without shards.

mod index;

use std::path::{Path, PathBuf};

pub use index::{Indexing, index_shard, index_vectors, merge_indexes};
use sporran_kilt::{folder::ShardSet, observe::Observer};

use crate::{
    Result,
    workflows::{
        answer,
        registry::workflow_of,
        workflow::{Merge, Outcome},
    },
};

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
