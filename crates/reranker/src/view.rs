//! Views: a reranker scores a list of passages against different texts, and the scores may be pooled by page.

use serde::{Deserialize, Serialize};
use sporran_kilt::{Passage, Query};

use crate::{PagePool, Reranker, Result};

/// The text that passages are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asks {
    /// The query.
    #[default]
    Query,
    /// The last lines of the query, which are a dialogue's last turns.
    LastTurns(usize),
    /// The passages themselves: the similarity of each to the others.
    Passages,
}

impl Asks {
    fn scores(self, reranker: &dyn Reranker, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        match self {
            Self::Query => reranker.score(query, passages),
            Self::LastTurns(count) => {
                let turns: Vec<&str> = query.text.lines().collect();
                let text = turns[turns.len().saturating_sub(count)..].join("\n");
                reranker.score(&Query { text, ..query.clone() }, passages)
            }
            Self::Passages => reranker.centrality(passages),
        }
    }
}

/// A way to score passages with a reranker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// The text that passages are compared with.
    #[serde(default)]
    pub asks: Asks,
    /// The pooling over the passages of a page, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PagePool>,
}

impl View {
    /// The scores of passages in each of `views`. The reranker scores each comparison only once.
    ///
    /// # Errors
    /// Where the reranker fails.
    pub fn scores(
        views: &[Self],
        reranker: &dyn Reranker,
        query: &Query,
        passages: &[&Passage],
    ) -> Result<Vec<Vec<f32>>> {
        let mut scored: Vec<(Asks, Vec<f32>)> = Vec::new();
        let mut found = Vec::with_capacity(views.len());
        for view in views {
            if scored.iter().all(|(asks, _)| *asks != view.asks) {
                scored.push((view.asks, view.asks.scores(reranker, query, passages)?));
            }
            for (_, plain) in scored.iter().filter(|(asks, _)| *asks == view.asks) {
                found.push(view.pool.map_or_else(|| plain.clone(), |pool| pool.pool(passages, plain)));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use sporran_kilt::PassageId;

    use super::*;
    use crate::passage_text;

    /// Scores by the letters that query and passage share, and counts its calls.
    #[derive(Default)]
    struct Letters(AtomicUsize);

    impl Reranker for Letters {
        fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let shared = |passage: &&Passage| {
                passage_text(passage).chars().filter(|c| query.text.contains(*c)).count() as f32
            };
            Ok(passages.iter().map(shared).collect())
        }
    }

    #[test]
    fn each_thing_is_asked_once_and_pools_are_taken_of_it() {
        let passage = |id: u32, page: &str, text: &str| Passage {
            id: PassageId(id),
            page_id: page.into(),
            title: String::new(),
            section: String::new(),
            text: text.into(),
            start_paragraph: 0,
            start_character: 0,
            end_paragraph: 0,
            end_character: 0,
        };
        let passages = [passage(0, "p", "ab"), passage(1, "p", "cx"), passage(2, "q", "b")];
        let passages: Vec<&Passage> = passages.iter().collect();
        let view = |asks, pool| View { asks, pool };
        let views = [
            view(Asks::Query, None),
            view(Asks::LastTurns(1), None),
            view(Asks::Query, Some(PagePool::Best)),
            view(Asks::LastTurns(9), None),
            view(Asks::Passages, None),
        ];
        let letters = Letters::default();
        let query = Query::of_text("q", "a b\nc");
        let scores = View::scores(&views, &letters, &query, &passages).unwrap();
        let third = 1.0 / 3.0;
        assert_eq!(
            scores,
            [
                vec![2.0, 1.0, 1.0],
                vec![0.0, 1.0, 0.0],
                vec![2.0, 2.0, 1.0],
                vec![2.0, 1.0, 1.0],
                // "ab" shares two letters with itself and one with "b"; "cx" two with itself; "b" one with each of two.
                vec![3.0 * third, 2.0 * third, 2.0 * third],
            ]
        );
        // The query, its last turn, its last nine, and each passage.
        assert_eq!(letters.0.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn a_view_is_written_shortly() {
        let whole: View = serde_json::from_str("{}").unwrap();
        assert_eq!(whole, View::default());
        let last = View { asks: Asks::LastTurns(2), pool: Some(PagePool::Mean) };
        let json = serde_json::to_string(&last).unwrap();
        assert_eq!(json, r#"{"asks":{"last-turns":2},"pool":"mean"}"#);
        assert_eq!(serde_json::from_str::<View>(&json).unwrap(), last);
    }
}
