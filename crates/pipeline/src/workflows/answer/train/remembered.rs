//! The retrieved passages of a training, kept in the run's folder: a resumed training does not search again.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Hit, PassageId, Query, hash_json, observe::Observer};
use sporran_retriever::{Error, Retriever};

use crate::{
    Result,
    run_dir::{journal::Journal, training::TrainingFolder},
    workflows::answer::{
        assemble::{Assembly, assemble_retrieval},
        options::Options,
    },
};

/// The store and the retriever of a training. The results of its searches are kept for a resumed training.
pub(crate) fn assemble_remembering(
    options: &Options,
    underway: &TrainingFolder,
    observe: &mut Observer<'_>,
) -> Result<Assembly> {
    let mut assembly = assemble_retrieval(options, observe)?;
    if let Some(retriever) = assembly.retriever.take() {
        assembly.retriever = Some(match underway.journal_of_searches() {
            Some((path, key)) => Box::new(Remembered::open(retriever, &path, &key)?),
            None => retriever,
        });
    }
    Ok(assembly)
}

/// A retriever whose results are written to a journal.
struct Remembered {
    base: Box<dyn Retriever>,
    state: Mutex<State>,
}

struct State {
    journal: Journal,
    /// The results of an earlier process, by the hash of the queries and the depth.
    known: FxHashMap<String, Vec<Vec<(u32, f32)>>>,
}

/// A line of the journal.
#[derive(Serialize, Deserialize)]
struct Line {
    search: String,
    hits: Vec<Vec<(u32, f32)>>,
}

impl Remembered {
    /// Opens the journal at `path`, or discards it if its key is another one. The key covers the retriever, its indexes and the
    /// training's inputs.
    fn open(base: Box<dyn Retriever>, path: &Path, key: &str) -> Result<Self> {
        let journal = Journal::open(path, key, None)?;
        let mut known = FxHashMap::default();
        journal.read(|Line { search, hits }| {
            known.insert(search, hits);
            Ok(())
        })?;
        Ok(Self { base, state: Mutex::new(State { journal, known }) })
    }
}

impl Retriever for Remembered {
    fn retrieve(&self, queries: &[Query], k: usize) -> sporran_retriever::Result<Vec<Vec<Hit>>> {
        let texts: Vec<_> = queries
            .iter()
            .map(|query| {
                (&query.text, &query.original, &query.mention, query.dataset, &query.template_questions)
            })
            .collect();
        let search = hash_json(&(texts, k));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hits) = state.known.remove(&search) {
            let hit = |(id, score)| Hit { passage: PassageId(id), score };
            return Ok(hits.into_iter().map(|hits| hits.into_iter().map(hit).collect()).collect());
        }
        let found = self.base.retrieve(queries, k)?;
        let hits = found.iter().map(|hits| hits.iter().map(|hit| (hit.passage.0, hit.score)).collect());
        let line = Line { search, hits: hits.collect() };
        state.journal.push(&line, queries.len()).map_err(|error| Error::Site(Box::new(error)))?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// Counts its searches.
    struct Counting(Arc<AtomicUsize>);

    impl Retriever for Counting {
        fn retrieve(&self, queries: &[Query], k: usize) -> sporran_retriever::Result<Vec<Vec<Hit>>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let hit = |query: &Query, id: usize| Hit {
                passage: PassageId(id as u32),
                score: 0.1 * (query.text.len() + id) as f32,
            };
            Ok(queries.iter().map(|query| (0..k).map(|id| hit(query, id)).collect()).collect())
        }
    }

    #[test]
    fn a_search_is_repeated_only_with_another_key_depth_or_query() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("retrieved.journal");
        let count = Arc::new(AtomicUsize::new(0));
        let searches = |key: &str, query: &str, k: usize| {
            let before = count.load(Ordering::Relaxed);
            let retriever = Remembered::open(Box::new(Counting(count.clone())), &path, key).unwrap();
            let hits = retriever.retrieve(&[Query::of_text(1i64, query)], k).unwrap();
            let expected = Counting(Arc::default()).retrieve(&[Query::of_text(1i64, query)], k).unwrap();
            assert_eq!(hits, expected);
            count.load(Ordering::Relaxed) - before
        };
        assert_eq!(searches("a", "tea", 3), 1);
        assert_eq!(searches("a", "tea", 3), 0);
        assert_eq!(searches("a", "milk", 3), 1);
        assert_eq!(searches("a", "tea", 2), 1);
        assert_eq!(searches("a", "milk", 3), 0);
        assert_eq!(searches("b", "tea", 3), 1);
    }
}
