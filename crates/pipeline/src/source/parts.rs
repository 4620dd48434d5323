//! The parts of a store and of indexes that shards made.

use std::path::PathBuf;

use sporran_kilt::{PassageStore, folder::ShardSet};
use sporran_retriever::PartFolders;

use crate::Result;

/// The parts of all shards, in order.
pub(crate) struct ShardParts {
    stores: Vec<PassageStore>,
    folders: Vec<(PathBuf, PartFolders)>,
}

impl ShardParts {
    /// Opens the parts of shards, whose files are verified.
    ///
    /// # Errors
    /// [`sporran_kilt::Error::Shard`] for a manifest without parts; those of [`PassageStore::open`].
    pub(crate) fn open(set: &ShardSet) -> Result<Self> {
        let (mut stores, mut folders) = (Vec::new(), Vec::new());
        for (folder, shard) in set.iter() {
            let parts: PartFolders = shard.details(folder)?;
            if let Some(store) = &parts.store {
                stores.push(PassageStore::open(folder.join(store))?);
            }
            folders.push((folder.to_owned(), parts));
        }
        Ok(Self { stores, folders })
    }

    /// The stores of the shards' pages; none if the shards have only vectors.
    pub(crate) fn stores(&self) -> &[PassageStore] {
        &self.stores
    }

    /// The folders of the parts of an index by their name; none for an index that no shard has.
    pub(crate) fn named(&self, name: &str) -> Option<Vec<PathBuf>> {
        let of = |(folder, parts): &(PathBuf, PartFolders)| Some(folder.join(parts.indexes.get(name)?));
        let found: Vec<PathBuf> = self.folders.iter().filter_map(of).collect();
        (!found.is_empty()).then_some(found)
    }
}
