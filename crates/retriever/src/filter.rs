//! Retrieval among some of the passages.

mod expression;
mod glob;
mod options;

use std::ops::Deref;

pub use expression::{Filter, Selection};
pub use options::{FilterOptions, Scalar};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Document, FromTable, Invalid, Kinds, Overrides, Table};
use sporran_kilt::{Hit, PassageId, Query, hash_json};

use crate::{
    PassageScorer, Result, Retriever,
    kind::RetrieverKind,
    plan::{IndexPlan, PlannedPassages},
    site::Site,
};

/// The version of the meaning of filters, a part of the keys of results.
const VERSION: u32 = 2;

/// `kind = "filtered"`, or a `[retriever.filter]` in a retriever of any kind.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FilteredOptions<R> {
    /// `[retriever.filter]`: the conditions on the metadata of passages.
    pub filter: FilterOptions,
    /// `[retriever.base]`: the retriever that searches, of any kind.
    pub base: Box<R>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl<R: Kinds> FromTable for FilteredOptions<R> {
    fn from_table<'t>(document: &mut Document<'t>, key: &str, mut table: Table<'t>) -> Result<Self, Invalid> {
        let base = document
            .take_table_of(key, "base", &mut table)
            .and_then(|inner| R::from_stage(document, &format!("{key}.base"), inner));
        let filter = document
            .take_table_of(key, "filter", &mut table)
            .and_then(|inner| FilterOptions::from_table(document, &format!("{key}.filter"), inner));
        let _: Nothing = document.read(key, table, &["base", "filter"]).ok_or(Invalid)?;
        Ok(Self { filter: filter?, base: Box::new(base?) })
    }
}

impl<R: Deref<Target = dyn RetrieverKind>> RetrieverKind for FilteredOptions<R> {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        self.filter.check(&format!("{key}.filter"), document);
        self.base.check(&format!("{key}.base"), document);
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        self.base.overrides(&format!("{key}.base"), found)
    }

    fn plan(&self, passages: PlannedPassages<'_>) -> Result<Vec<IndexPlan>> {
        self.base.plan(passages)
    }

    fn bases(&self) -> Vec<&dyn RetrieverKind> {
        vec![&**self.base]
    }

    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>> {
        // Before any index is built, because the filter can be wrong.
        let store = site.store().clone();
        let passages = Filter::new(&self.filter, &store)?.select(&store)?;
        site.depends_on("filter", None, hash_json(&(VERSION, &self.filter, store.metadata_hash())));
        let base = self.base.open(site)?;
        Ok(Box::new(Filtered::new(base, move |passage| passages.contains(passage))))
    }

    fn open_scorer(&self, site: &mut dyn Site) -> Result<Option<Box<dyn PassageScorer>>> {
        self.base.open_scorer(site)
    }
}

/// Accepts the passages that a search may return. [`Filter`] makes one of conditions on metadata.
pub type PassageFilter<'a> = dyn Fn(PassageId) -> bool + Sync + 'a;

/// A retriever restricted to some of the passages.
pub struct Filtered<R, F> {
    base: R,
    wanted: F,
}

impl<R: Retriever, F: Fn(PassageId) -> bool + Send + Sync> Filtered<R, F> {
    /// Keeps the passages for which `wanted` returns true.
    pub fn new(base: R, wanted: F) -> Self {
        Self { base, wanted }
    }
}

impl<R: Retriever, F: Fn(PassageId) -> bool + Send + Sync> Retriever for Filtered<R, F> {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        self.base.retrieve_filtered(queries, k, &self.wanted)
    }

    fn retrieve_filtered(
        &self,
        queries: &[Query],
        k: usize,
        filter: &PassageFilter<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        self.base.retrieve_filtered(queries, k, &|passage| (self.wanted)(passage) && filter(passage))
    }
}

/// The accepted results of a search that has no filter: it is repeated with more results until enough are accepted or it
/// has no more. So the ranking is that of all passages without the others, even if few are accepted.
pub(crate) fn widen(
    search: impl Fn(&[Query], usize) -> Result<Vec<Vec<Hit>>>,
    queries: &[Query],
    k: usize,
    filter: &PassageFilter<'_>,
) -> Result<Vec<Vec<Hit>>> {
    let mut found: Vec<Vec<Hit>> = vec![Vec::new(); queries.len()];
    let mut open: Vec<usize> = (0..queries.len()).collect();
    let mut depth = k.saturating_mul(2);
    while !open.is_empty() && k > 0 {
        let rest: Vec<Query> = open.iter().map(|&query| queries[query].clone()).collect();
        let rankings = search(&rest, depth)?;
        let mut short = Vec::new();
        for (query, ranking) in open.into_iter().zip(rankings) {
            let is_exhausted = ranking.len() < depth;
            let kept: Vec<Hit> = ranking.into_iter().filter(|hit| filter(hit.passage)).take(k).collect();
            if kept.len() < k && !is_exhausted {
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
