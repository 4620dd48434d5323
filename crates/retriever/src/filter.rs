//! A retriever restricted to some of the passages.

use sporran_kilt::{Hit, PassageId, Query};

use crate::{Result, Retriever};

/// Filters the results of another retriever.
///
/// The other one returns increasingly many results until enough are left or it has no more. So the ranking is
/// that of all passages without the unwanted ones, even if few are wanted.
pub struct Filtered<R, F> {
    base: R,
    wanted: F,
}

impl<R: Retriever, F: Fn(PassageId) -> bool + Send + Sync> Filtered<R, F> {
    /// Keeps the passages for which `wanted` returns true.
    pub fn new(base: R, wanted: F) -> Self {
        Self { base, wanted }
    }

    fn kept(&self, hits: Vec<Hit>, k: usize) -> Vec<Hit> {
        hits.into_iter().filter(|hit| (self.wanted)(hit.passage)).take(k).collect()
    }
}

impl<R: Retriever, F: Fn(PassageId) -> bool + Send + Sync> Retriever for Filtered<R, F> {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        let mut found: Vec<Vec<Hit>> = vec![Vec::new(); queries.len()];
        let mut open: Vec<usize> = (0..queries.len()).collect();
        let mut depth = k.saturating_mul(2);
        while !open.is_empty() && k > 0 {
            let asked: Vec<Query> = open.iter().map(|&query| queries[query].clone()).collect();
            let rankings = self.base.retrieve(&asked, depth)?;
            let mut short = Vec::new();
            for (query, ranking) in open.into_iter().zip(rankings) {
                let exhausted = ranking.len() < depth;
                let kept = self.kept(ranking, k);
                if kept.len() < k && !exhausted {
                    short.push(query);
                } else {
                    found[query] = kept;
                }
            }
            open = short;
            depth = depth.saturating_mul(4);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns passages 0, 1, 2 .. of a hundred.
    struct Counting;

    impl Retriever for Counting {
        fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
            let hit = |id| Hit { passage: PassageId(id), score: -(id as f32) };
            Ok(queries.iter().map(|_| (0..100).take(k).map(hit).collect()).collect())
        }
    }

    fn ids(k: usize, wanted: impl Fn(PassageId) -> bool + Send + Sync) -> Vec<u32> {
        let query = Query::of_text(1i64, "q");
        let found = Filtered::new(Counting, wanted).retrieve(&[query], k).unwrap();
        found[0].iter().map(|hit| hit.passage.0).collect()
    }

    #[test]
    fn rare_passages_are_found_however_deep_they_lie() {
        assert_eq!(ids(3, |id| id.0 % 30 == 29), [29, 59, 89]);
        assert_eq!(ids(5, |id| id.0 % 30 == 29), [29, 59, 89]);
        assert_eq!(ids(2, |_| true), [0, 1]);
        assert!(ids(2, |_| false).is_empty());
    }
}
