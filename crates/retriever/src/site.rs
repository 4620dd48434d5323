//! What retrievers need while they are opened.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use sporran_kilt::{
    PassageId, PassageStore, counted,
    folder::{Place, Shard},
};

use crate::{
    Error, Result,
    entity::aliases::Aliases,
    plan::{IndexPlan, PlannedPassages},
};

/// The passages that retrievers are opened over, and the folder of their indexes.
///
/// The caller implements it: it knows where indexes are, reports progress, and collects the hashes that results depend
/// on.
pub trait Site {
    /// The passages.
    fn store(&self) -> &Arc<PassageStore>;

    /// The names of pages. All retrievers share them.
    ///
    /// # Errors
    /// Errors of building or opening their index.
    fn aliases(&mut self) -> Result<Arc<Aliases>>;

    /// The folder of an index, which `build` writes if it does not exist.
    ///
    /// # Errors
    /// Errors of `build`, and [`crate::Error::Io`].
    fn index(&mut self, index: NewIndex, build: &mut BuildIndex<'_>) -> Result<PathBuf>;

    /// The hash of the content of the source, if the caller knows it.
    fn source_hash(&self) -> Option<String> {
        None
    }

    /// The folders of the parts of an index, in the order of their passages, if shards made them. `part` is the part's name.
    fn parts(&self, part: &str) -> Option<Vec<PathBuf>> {
        let _ = part;
        None
    }

    /// Reports the estimated resources of an index that [`index`](Self::index) is going to build. The caller decides whether
    /// an estimate is worth its time.
    ///
    /// # Errors
    /// Errors of `plan`.
    fn announce(&mut self, index: &NewIndex, plan: &PlanIndex<'_>) -> Result<()> {
        let _ = (index, plan);
        Ok(())
    }

    /// Records a hash that rankings depend on besides the indexes. Without a path it is that of options alone.
    fn depends_on(&mut self, part: &'static str, path: Option<&Path>, hash: String);

    /// The names and hashes of a model folder's files.
    ///
    /// # Errors
    /// [`crate::Error::Site`] if a file cannot be read.
    fn files(&mut self, folder: &Path) -> Result<Vec<(String, String)>>;

    /// Records the measured recall of an approximate index.
    fn record_recall(&mut self, recall: IndexRecall);
}

/// The place where a shard builds its parts of indexes.
pub trait PartSite {
    /// Which shard.
    fn shard(&self) -> Shard;

    /// The store of the shard's pages, whose passages count from 0; none if the shard has no pages.
    fn pages(&self) -> Option<Arc<PassageStore>>;

    /// The store of the whole source.
    ///
    /// # Errors
    /// Errors of building or opening it.
    fn whole(&mut self) -> Result<Arc<PassageStore>>;

    /// Builds a part of an index unless it exists.
    ///
    /// # Errors
    /// Errors of `build`, and [`crate::Error::Io`].
    fn part(&mut self, part: NewPart, build: &mut BuildIndex<'_>) -> Result<()>;
}

/// A part of an index to build.
#[derive(Clone, Debug)]
pub struct NewPart {
    /// Its name, by which the merge finds it: the kind of index, and a hash of its options. It is the folder's name.
    pub name: String,
    /// The hash of everything that the part depends on.
    pub key: String,
    /// The number of its passages.
    pub passages: usize,
}

/// The parts in a shard's folder, which its manifest has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFolders {
    /// The folder of the store of the shard's pages; none if it has no pages.
    pub store: Option<String>,
    /// The folders of the parts of indexes, by the parts' names.
    pub indexes: BTreeMap<String, String>,
}

/// The folders of a part of an index in all shards that have it, in order.
///
/// # Errors
/// [`Error::Part`] if no shard has it.
pub(crate) fn folders_of(shards: &[(PathBuf, PartFolders)], name: &str) -> Result<Vec<PathBuf>> {
    let of = |(folder, parts): &(PathBuf, PartFolders)| Some(folder.join(parts.indexes.get(name)?));
    let found: Vec<PathBuf> = shards.iter().filter_map(of).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let (path, parts) = shards.first().cloned().unwrap_or_default();
    let known = parts.indexes.into_keys().collect::<Vec<_>>().join(", ");
    let found = if known.is_empty() { "none".to_owned() } else { known };
    Err(Error::Part { path, expected: format!("the part {name} of the base's index"), found })
}

/// The name of a part: a kind, and the beginning of a hash.
pub(crate) fn part_name(kind: &str, hash: &str) -> String {
    format!("{kind}-{}", &hash[..12])
}

/// Writes an index to a place and reports how many items are done.
pub type BuildIndex<'a> = dyn FnMut(Place, &mut dyn FnMut(u64)) -> Result<()> + 'a;

/// Estimates the resources of an index from a sample of its passages.
pub type PlanIndex<'a> = dyn Fn(PlannedPassages<'_>) -> Result<IndexPlan> + 'a;

/// An index to open or build.
#[derive(Clone, Debug)]
pub struct NewIndex {
    /// Its kind, the first part of the folder's name.
    pub kind: &'static str,
    /// The hash of everything that the index depends on; the rest of the folder's name.
    pub key: String,
    /// What a build counts.
    pub items: Items,
}

/// What the build of an index counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Items {
    /// Passages.
    Passages,
    /// Pages.
    Pages,
}

/// The recall of an approximate index against exact search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexRecall {
    /// The folder of the index.
    pub index: PathBuf,
    /// The share of the `k` nearest vectors that the search finds, averaged over queries.
    pub recall: f64,
    /// The number of nearest vectors.
    pub k: u32,
    /// The number of queries: vectors of the index, drawn by a fixed seed.
    pub queries: u32,
    /// Vectors that could not be reached in the graph as it was built, and can be now.
    pub repaired: u32,
    /// Vectors that cannot be reached.
    pub lost: u32,
}

impl std::fmt::Display for IndexRecall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { index, recall, k, queries, repaired, lost } = self;
        write!(
            f,
            "{}: finds {:.2} % of the {k} nearest (of {}); {} repaired, {lost} lost",
            index.display(),
            100.0 * recall,
            counted(*queries as u64, "vector"),
            counted(*repaired as u64, "vector")
        )
    }
}

/// Passages with their ids, titles and texts, as the indexes read them.
pub(crate) type Passages<'s> =
    Box<dyn Iterator<Item = sporran_kilt::Result<(PassageId, &'s str, String)>> + 's>;

/// The passages of a store, from an id on.
pub(crate) fn passages(store: &PassageStore, from: PassageId) -> Passages<'_> {
    let passage = |id| {
        let passage = (id, store.page_title(store.page_of(id)), store.text(id));
        store.sound().map(|()| passage)
    };
    Box::new((from.0..store.len() as u32).map(PassageId).map(passage))
}
