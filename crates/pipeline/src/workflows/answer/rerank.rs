//! A retriever that reranks the best passages of another one.

use std::{sync::Arc, time::Instant};

use sporran_kilt::{Hit, Passage, PassageStore, Query};
use sporran_reranker::Reranker;
use sporran_retriever::{PassageFilter, Result, Retriever, Trace};

use crate::{Error, workflows::answer::retrieval::RerankOptions};

/// Reranks the hits of another retriever.
pub(crate) struct Reranked {
    base: Box<dyn Retriever>,
    reranker: Box<dyn Reranker>,
    store: Arc<PassageStore>,
    options: RerankOptions,
}

impl Reranked {
    pub(crate) fn new(
        base: Box<dyn Retriever>,
        reranker: Box<dyn Reranker>,
        store: Arc<PassageStore>,
        options: RerankOptions,
    ) -> Self {
        Self { base, reranker, store, options }
    }

    fn reordered(&self, query: &Query, mut hits: Vec<Hit>, k: usize) -> Result<Vec<Hit>> {
        let rest = hits.split_off(self.options.depth.min(hits.len()));
        let passages: Vec<Passage> = hits.iter().map(|hit| self.store.passage(hit.passage)).collect();
        let passages: Vec<&Passage> = passages.iter().collect();
        let scores = self
            .reranker
            .score(query, &passages)
            .map_err(|error| sporran_retriever::Error::Site(Box::new(Error::Reranker(error))))?;
        let mut scored: Vec<Hit> =
            hits.iter().zip(scores).map(|(hit, score)| Hit { passage: hit.passage, score }).collect();
        scored.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.passage.cmp(&b.passage)));
        if let Some(fusion) = &self.options.fusion {
            scored = fusion.fuse(&[&hits, &scored]);
        }
        // The passages that were not scored follow in the retriever's order, with slightly decreasing scores.
        let mut below = scored.last().map_or(0.0, |hit| hit.score);
        for hit in rest {
            below = below.next_down();
            scored.push(Hit { passage: hit.passage, score: below });
        }
        scored.truncate(k);
        Ok(scored)
    }
}

impl Retriever for Reranked {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        let found = self.base.retrieve(queries, k.max(self.options.depth))?;
        queries.iter().zip(found).map(|(query, hits)| self.reordered(query, hits, k)).collect()
    }

    fn retrieve_filtered(
        &self,
        queries: &[Query],
        k: usize,
        filter: &PassageFilter<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        let found = self.base.retrieve_filtered(queries, k.max(self.options.depth), filter)?;
        queries.iter().zip(found).map(|(query, hits)| self.reordered(query, hits, k)).collect()
    }

    fn trace(&self, query: &Query, k: usize) -> Result<Trace> {
        let found = self.base.trace(query, k.max(self.options.depth))?;
        let begin = Instant::now();
        let hits = self.reordered(query, found.hits.clone(), k)?;
        let (step, parts, seconds) = ("reranked".to_owned(), vec![found], begin.elapsed().as_secs_f64());
        Ok(Trace { step, query: query.text.clone(), seconds, hits, sets: Vec::new(), parts })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use sporran_kilt::{PassageId, PassageSplit, jsonl, store::BuildOptions};
    use sporran_retriever::fusion::FusionOptions;

    use super::*;

    /// Retrieves the passages 0, 1, 2 and so on, in that order.
    struct InOrder;

    impl Retriever for InOrder {
        fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
            let hit = |id: u32| Hit { passage: PassageId(id), score: 10.0 - id as f32 };
            Ok(queries.iter().map(|_| (0..4).take(k).map(hit).collect()).collect())
        }
    }

    /// Scores long texts higher.
    struct ByLength;

    impl Reranker for ByLength {
        fn score(&self, _: &Query, passages: &[&Passage]) -> sporran_reranker::Result<Vec<f32>> {
            Ok(passages.iter().map(|passage| passage.text.len() as f32).collect())
        }
    }

    /// Four passages of growing length.
    fn store() -> (tempfile::TempDir, Arc<PassageStore>) {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("pages.jsonl");
        let lines: Vec<String> = ["a", "aa", "aaa", "aaaa"]
            .iter()
            .enumerate()
            .map(|(id, text)| {
                format!(r#"{{"wikipedia_id":"{id}","wikipedia_title":"T{id}","text":["T{id}","{text}"]}}"#)
            })
            .collect();
        jsonl::write(&source, lines.join("\n").as_bytes()).unwrap();
        let build = BuildOptions { source, redirects: None, split: PassageSplit::Page };
        let store = PassageStore::build(&build, folder.path().join("store"), &mut |_| {}).unwrap();
        (folder, Arc::new(store))
    }

    fn order(options: RerankOptions, k: usize) -> Vec<u32> {
        let (_folder, store) = store();
        let reranked = Reranked::new(Box::new(InOrder), Box::new(ByLength), store, options);
        let hits = reranked.retrieve(&[Query::of_text("q", "q")], k).unwrap().pop().unwrap();
        assert!(hits.windows(2).all(|pair| pair[0].score >= pair[1].score), "{hits:?}");
        hits.iter().map(|hit| hit.passage.0).collect()
    }

    #[test]
    fn the_best_are_reordered_and_the_rest_follow() {
        assert_eq!(order(RerankOptions { depth: 3, fusion: None }, 10), [2, 1, 0, 3]);
        assert_eq!(order(RerankOptions { depth: 9, fusion: None }, 2), [3, 2]);
    }

    /// Counts the searches of a retriever and the queries of a reranker.
    struct Counted<T>(T, Arc<AtomicUsize>);

    impl Retriever for Counted<InOrder> {
        fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.retrieve(queries, k)
        }
    }

    impl Reranker for Counted<ByLength> {
        fn score(&self, query: &Query, passages: &[&Passage]) -> sporran_reranker::Result<Vec<f32>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.score(query, passages)
        }
    }

    /// Fails as an option does.
    struct Failing;

    impl Reranker for Failing {
        fn score(&self, _: &Query, _: &[&Passage]) -> sporran_reranker::Result<Vec<f32>> {
            Err(sporran_reranker::Error::Option { option: "depth", expected: "a", found: "b".to_owned() })
        }
    }

    #[test]
    fn an_error_of_the_reranker_is_its_own() {
        let (_folder, store) = store();
        let options = RerankOptions { depth: 3, fusion: None };
        let reranked = Reranked::new(Box::new(InOrder), Box::new(Failing), store, options);
        let error = Error::from(reranked.retrieve(&[Query::of_text("q", "q")], 3).unwrap_err());
        assert_eq!(error.to_string(), "depth: expected a, found b");
        assert!(matches!(error, Error::Reranker(_)) && error.is_input());
    }

    #[test]
    fn a_trace_searches_and_reranks_once() {
        let (_folder, store) = store();
        let counts = [Arc::default(), Arc::default()];
        let [searches, scores] = counts.clone();
        let (base, reranker) = (Counted(InOrder, searches), Counted(ByLength, scores));
        let options = RerankOptions { depth: 3, fusion: None };
        let reranked = Reranked::new(Box::new(base), Box::new(reranker), store, options);
        let query = Query::of_text("q", "q");
        let trace = reranked.trace(&query, 10).unwrap();
        assert_eq!(counts.each_ref().map(|count| count.load(Ordering::Relaxed)), [1, 1]);
        let hits = reranked.retrieve(std::slice::from_ref(&query), 10).unwrap();
        assert_eq!((&trace.hits, trace.parts[0].hits.len()), (&hits[0], 4));
    }

    #[test]
    fn the_order_can_be_fused_with_the_retriever_s() {
        // With reciprocal ranks, the order of the higher weight wins.
        let fusion =
            |weights: [f32; 2]| Some(FusionOptions { weights: weights.into(), ..FusionOptions::default() });
        assert_eq!(order(RerankOptions { depth: 4, fusion: fusion([2.0, 1.0]) }, 10), [0, 1, 2, 3]);
        assert_eq!(order(RerankOptions { depth: 4, fusion: fusion([1.0, 2.0]) }, 10), [3, 2, 1, 0]);
    }
}
