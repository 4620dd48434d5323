//! The resources that the store and the indexes of a config will take.

use serde::Serialize;
use sporran_kilt::{
    PassageStore,
    observe::Observer,
    resources::memory,
    store::{Plan, PlanOptions},
};
use sporran_retriever::{IndexPlan, PlannedPassages};

use crate::{Error, Result, source::documents::source_pages, workflows::answer::options::Options};

/// Bytes of the program itself, at least: a build has buffers and threads that an estimate lacks.
const PROGRAM: u64 = 96 << 20;

/// The estimated resources of a config's store and indexes.
#[derive(Clone, Debug, Serialize)]
pub struct BuildPlan {
    /// The store.
    #[serde(flatten)]
    pub store: Plan,
    /// The indexes of the retriever, in the order of their builds. Indexes of names and titles have no estimate.
    pub indexes: Vec<IndexPlan>,
    /// All of them.
    pub total: Total,
}

/// The estimated resources of all builds, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Total {
    /// Bytes of the store and the indexes on disk.
    pub disk_bytes: u64,
    /// The most bytes on disk, with temporary files.
    pub build_disk_bytes: u64,
    /// The most bytes of memory of the process, without the pages of mapped files.
    pub memory_bytes: u64,
    /// The most bytes of memory of the process, if the system keeps all pages of the mapped files.
    pub resident_bytes: u64,
    /// Seconds.
    pub seconds: f64,
}

impl BuildPlan {
    /// Estimates the store and the indexes of a config from a sample of its source. Nothing is built.
    ///
    /// # Errors
    /// Errors of the source, a model or the temporary folder; a config without `[source]`.
    pub fn of(options: &Options, sample: PlanOptions, observe: &mut Observer<'_>) -> Result<Self> {
        let program = memory().map_or(PROGRAM, |memory| memory.now.max(PROGRAM));
        let Some(source) = &options.general.source else {
            let message = "the config has no `[source]` to index".to_owned();
            return Err(Error::from(sporran_kilt::Error::Argument(message)));
        };
        let mut store = match source.format {
            Some(collection) => {
                PassageStore::plan_collection(collection, source.first_path(), source.splitting(), sample)?
            }
            None => PassageStore::plan(&source_pages(source, observe)?, source.splitting(), sample)?,
        };
        let passages = PlannedPassages { count: store.passages, sample: &store.sample };
        let indexes = match &options.retriever {
            None => Vec::new(),
            Some(retriever) => retriever.plan(passages)?,
        };
        store.sample = Vec::new();
        Ok(Self { total: Total::of(program, &store, &indexes), store, indexes })
    }
}

impl Total {
    fn of(program: u64, store: &Plan, indexes: &[IndexPlan]) -> Self {
        let most = |of: fn(&IndexPlan) -> u64| indexes.iter().map(of).max().unwrap_or_default();
        let disk: u64 = indexes.iter().map(|index| index.disk_bytes).sum();
        // The last build may have the most temporary files next to all indexes before it.
        let temporary = most(|index| index.build_disk_bytes - index.disk_bytes.min(index.build_disk_bytes));
        let memory = store.memory_bytes.max(most(|index| index.memory_bytes));
        // An index is built over the mapped store.
        let mapped = most(|index| index.memory_bytes + index.mapped_bytes);
        let over_store = if indexes.is_empty() { 0 } else { mapped + store.disk_bytes };
        Self {
            disk_bytes: store.disk_bytes + disk,
            build_disk_bytes: store.disk_bytes + disk + temporary,
            memory_bytes: program + memory,
            resident_bytes: program + store.memory_bytes.max(over_store),
            seconds: store.seconds + indexes.iter().map(|index| index.seconds).sum::<f64>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_follow_each_other_over_the_mapped_store() {
        let store = Plan {
            sampled_pages: 1,
            counted_pages: 1,
            read: 1.0,
            complete: true,
            pages: 1,
            pages_error: 0.0,
            passages: 1,
            disk_bytes: 100,
            memory_bytes: 50,
            seconds: 1.0,
            sample: Vec::new(),
        };
        let index = |disk_bytes, build_disk_bytes, memory_bytes, mapped_bytes| IndexPlan {
            kind: "bm25",
            disk_bytes,
            build_disk_bytes,
            memory_bytes,
            mapped_bytes,
            seconds: 2.0,
        };
        let total = Total::of(10, &store, &[index(5, 9, 70, 0), index(6, 6, 20, 60)]);
        let expected = Total {
            disk_bytes: 111,
            build_disk_bytes: 115,
            memory_bytes: 80,
            resident_bytes: 190,
            seconds: 5.0,
        };
        assert_eq!(total, expected);
        let alone = Total::of(10, &store, &[]);
        assert_eq!((alone.memory_bytes, alone.resident_bytes, alone.disk_bytes), (60, 60, 100));
    }
}
