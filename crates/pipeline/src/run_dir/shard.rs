//! The folder of a shard: a run's folder with a manifest of the shard, which is written last.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sporran_kilt::folder::{SHARD_MANIFEST, Shard, ShardManifest, ShardRange};

use crate::{Error, Result, run_dir::folder::RunDir};

/// The result of a shard.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShardReport {
    /// The verb.
    pub verb: String,
    /// The name of the whole work.
    pub name: String,
    /// Which shard.
    pub shard: Shard,
    /// The folder of the shard.
    pub folder: PathBuf,
    /// The range of each input.
    pub ranges: BTreeMap<String, ShardRange>,
}

impl fmt::Display for ShardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of `{}` of `{}`", self.shard, self.verb, self.name)?;
        for (input, ShardRange { from, to, of }) in &self.ranges {
            match from == to {
                true => write!(f, "\n  {input}: none of {of}")?,
                false => write!(f, "\n  {input}: {from} to {} of {of}", to - 1)?,
            }
        }
        write!(f, "\nshard: {}\nmerge all shards with `sporran merge`", self.folder.display())
    }
}

impl RunDir {
    /// Locks the folder of a shard, and makes it an unfinished one.
    ///
    /// # Errors
    /// Those of [`RunDir::open`]; [`Error::Io`] if the manifest cannot be removed.
    pub(crate) fn open_shard(output: &Path, name: &str, shard: Shard) -> Result<Self> {
        let folder = Self::open(output.join(shard.folder_name(name)))?;
        let path = folder.root.join(SHARD_MANIFEST);
        if path.exists() {
            fs::remove_file(&path).map_err(Error::io(&path, "remove"))?;
        }
        Ok(folder)
    }

    /// Writes the manifest of a shard over its results, relative to the folder, and `config.toml`, with what the merge needs.
    ///
    /// # Errors
    /// Those of [`ShardManifest::write`].
    pub(crate) fn finish_shard(
        &self,
        manifest: ShardManifest,
        mut results: Vec<PathBuf>,
        details: &impl Serialize,
    ) -> Result<ShardReport> {
        results.push("config.toml".into());
        let ShardManifest { verb, name, shard, ranges, .. } = manifest.write(&self.root, results, details)?;
        self.finished();
        Ok(ShardReport { verb, name, shard, folder: self.root.clone(), ranges })
    }
}
