//! Views of a query: a reranker scores passages against parts of the query or against each other, with optional pooling of
//! the scores by page.

use serde::{Deserialize, Serialize};
use sporran_kilt::{Passage, Query, Template};

use crate::{Error, PagePool, Reranker, Result};

/// The template of `passage-template`, which joins a passage's title and text.
///
/// # Errors
/// [`Error::Option`] for a text without either.
pub(crate) fn passage_template(text: Option<&str>) -> Result<Option<Template>> {
    let parse = |text: &str| {
        Template::parse(text, &["title", "text"]).ok_or_else(|| Error::Option {
            option: "passage-template",
            expected: "a text with `{title}`, `{text}` or both",
            found: format!("`{text}`"),
        })
    };
    text.map(parse).transpose()
}

/// The source of the text that passages are scored against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuerySource {
    /// The query.
    #[default]
    Query,
    /// The given number of last lines of the query, which are the last turns of a dialogue.
    LastTurns(usize),
    /// The passages themselves. The score of a passage is its centrality: see [`Reranker::centrality`].
    Passages,
}

impl QuerySource {
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

/// A way to score the passages of a query with a reranker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryView {
    /// The source of the text that passages are scored against. `reranker.json` calls it `asks`.
    #[serde(default, rename = "asks")]
    pub source: QuerySource,
    /// The pooling over the passages of a page, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PagePool>,
}

impl QueryView {
    /// The scores of the passages in each of `views`. The reranker scores each source only once.
    ///
    /// # Errors
    /// Errors of the reranker.
    pub fn scores(
        views: &[Self],
        reranker: &dyn Reranker,
        query: &Query,
        passages: &[&Passage],
    ) -> Result<Vec<Vec<f32>>> {
        let mut scored: Vec<(QuerySource, Vec<f32>)> = Vec::new();
        let mut found = Vec::with_capacity(views.len());
        for view in views {
            if scored.iter().all(|(source, _)| *source != view.source) {
                scored.push((view.source, view.source.scores(reranker, query, passages)?));
            }
            for (_, plain) in scored.iter().filter(|(source, _)| *source == view.source) {
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
    fn each_source_is_scored_once_and_pooled_afterwards() {
        let passage = |id: u32, page: &str, text: &str| Passage {
            id: PassageId(id),
            page_id: page.into(),
            ..Passage::of_text(text)
        };
        let passages = [passage(0, "p", "ab"), passage(1, "p", "cx"), passage(2, "q", "b")];
        let passages: Vec<&Passage> = passages.iter().collect();
        let view = |source, pool| QueryView { source, pool };
        let views = [
            view(QuerySource::Query, None),
            view(QuerySource::LastTurns(1), None),
            view(QuerySource::Query, Some(PagePool::Best)),
            view(QuerySource::LastTurns(9), None),
            view(QuerySource::Passages, None),
        ];
        let letters = Letters::default();
        let query = Query::of_text("q", "a b\nc");
        let scores = QueryView::scores(&views, &letters, &query, &passages).unwrap();
        let third = 1.0 / 3.0;
        assert_eq!(
            scores,
            [
                vec![2.0, 1.0, 1.0],
                vec![0.0, 1.0, 0.0],
                vec![2.0, 2.0, 1.0],
                vec![2.0, 1.0, 1.0],
                // "ab" shares two letters with itself and one with "b". "cx" shares two with itself. "b" shares one with
                // "ab" and one with itself.
                vec![3.0 * third, 2.0 * third, 2.0 * third],
            ]
        );
        // One call for the query, for its last turn, for its last nine turns, and for each passage.
        assert_eq!(letters.0.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn a_view_round_trips_through_json() {
        let whole: QueryView = serde_json::from_str("{}").unwrap();
        assert_eq!(whole, QueryView::default());
        let last = QueryView { source: QuerySource::LastTurns(2), pool: Some(PagePool::Mean) };
        let json = serde_json::to_string(&last).unwrap();
        assert_eq!(json, r#"{"asks":{"last-turns":2},"pool":"mean"}"#);
        assert_eq!(serde_json::from_str::<QueryView>(&json).unwrap(), last);
    }
}
