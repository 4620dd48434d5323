//! What a page's passages say of each other: every passage gets the best, or the mean, score of its page's passages.
//!
//! A sentence beside one that fits the query is likelier to fit than its own words tell.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Passage, Query};

use crate::{Reranker, Result};

/// How the scores of a page's passages become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PagePool {
    /// The greatest.
    Best,
    /// The mean.
    Mean,
}

/// Scores passages by all of their page's passages among the candidates.
pub struct Pooled {
    inner: Box<dyn Reranker>,
    pool: PagePool,
}

impl Pooled {
    /// Pools the scores of `inner`.
    #[must_use]
    pub fn new(inner: Box<dyn Reranker>, pool: PagePool) -> Self {
        Self { inner, pool }
    }
}

impl Reranker for Pooled {
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        let scores = self.inner.score(query, passages)?;
        let mut pages: FxHashMap<&str, (f32, f32, f32)> = FxHashMap::default();
        for (passage, &score) in passages.iter().zip(&scores) {
            let page = pages.entry(passage.page_id.as_str()).or_insert((f32::NEG_INFINITY, 0.0, 0.0));
            *page = (page.0.max(score), page.1 + score, page.2 + 1.0);
        }
        let pooled = |passage: &&Passage| {
            let (best, sum, count) = pages[passage.page_id.as_str()];
            match self.pool {
                PagePool::Best => best,
                PagePool::Mean => sum / count,
            }
        };
        Ok(passages.iter().map(pooled).collect())
    }
}

#[cfg(test)]
mod tests {
    use sporran_kilt::PassageId;

    use super::*;

    /// Scores a passage by its number.
    struct ByNumber;

    impl Reranker for ByNumber {
        fn score(&self, _: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
            Ok(passages.iter().map(|passage| passage.id.0 as f32).collect())
        }
    }

    #[test]
    fn passages_of_a_page_share_its_score() {
        let passage = |id: u32, page: &str| Passage {
            id: PassageId(id),
            page_id: page.into(),
            title: String::new(),
            section: String::new(),
            text: String::new(),
            start_paragraph: 0,
            start_character: 0,
            end_paragraph: 0,
            end_character: 0,
        };
        let passages = [passage(1, "a"), passage(9, "b"), passage(4, "a")];
        let passages: Vec<&Passage> = passages.iter().collect();
        let scores = |pool| {
            let pooled = Pooled::new(Box::new(ByNumber), pool);
            pooled.score(&Query::of_text("q", "q"), &passages).unwrap()
        };
        assert_eq!(scores(PagePool::Best), [4.0, 9.0, 4.0]);
        assert_eq!(scores(PagePool::Mean), [2.5, 9.0, 2.5]);
    }
}
