//! BM25 and tf-idf as kinds of retriever: indexes that are built once.

use serde::Serialize;
use sporran_config::Document;
use sporran_kilt::{PassageId, folder::Place, hash_json};

use super::{
    bm25::{Bm25, Bm25Options},
    builder::{Build, Progress},
    tfidf::{TfIdf, TfIdfOptions},
};
use crate::{
    PassageScorer, Result, Retriever,
    kind::{RetrieverKind, Tagged},
    plan::{IndexPlan, PlannedPassages},
    site::{Items, NewIndex, Passages, PlanIndex, Site, passages},
};

/// The folder of a sparse index and the hash of its passages.
fn index(
    kind: &'static str,
    options: &impl Serialize,
    site: &mut dyn Site,
    plan: &PlanIndex<'_>,
    build: impl Fn(Passages<'_>, &str, Place, Build<'_>) -> Result<()>,
) -> Result<(std::path::PathBuf, String)> {
    let store = site.store().clone();
    let key = hash_json(&(Tagged { kind, options }, store.hash()));
    let new = NewIndex { kind, key, items: Items::Passages };
    site.announce(&new, plan)?;
    let folder = site.index(new, &mut |place, advance| {
        let mut progress = |progress| {
            if let Progress::Passages(done) = progress {
                advance(done);
            }
        };
        build(passages(&store, PassageId(0)), store.hash(), place, Build::new(&mut progress))
    })?;
    Ok((folder, store.hash().to_owned()))
}

impl Bm25Options {
    /// Opens the retriever, building its index if it does not exist.
    ///
    /// # Errors
    /// As [`RetrieverKind::open`].
    pub fn open_index(&self, site: &mut dyn Site) -> Result<Bm25> {
        let (folder, hash) = index(
            "bm25",
            self,
            site,
            &|passages| Bm25::plan(self, passages),
            |passages, hash, place, build| Bm25::build(self, passages, hash, place, build),
        )?;
        Bm25::open(&folder, &hash)
    }
}

impl RetrieverKind for Bm25Options {
    // The schema has the ranges of all options.
    fn check(&self, _: &str, _: &mut Document<'_>) {}

    fn plan(&self, passages: PlannedPassages<'_>) -> Result<Vec<IndexPlan>> {
        Ok(vec![Bm25::plan(self, passages)?])
    }

    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>> {
        Ok(Box::new(self.open_index(site)?))
    }

    fn open_scorer(&self, site: &mut dyn Site) -> Result<Option<Box<dyn PassageScorer>>> {
        Ok(Some(Box::new(self.open_index(site)?)))
    }
}

impl RetrieverKind for TfIdfOptions {
    // The schema has the ranges of all options.
    fn check(&self, _: &str, _: &mut Document<'_>) {}

    fn plan(&self, passages: PlannedPassages<'_>) -> Result<Vec<IndexPlan>> {
        Ok(vec![TfIdf::plan(self, passages)?])
    }

    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>> {
        let (folder, hash) = index(
            "tfidf",
            self,
            site,
            &|passages| TfIdf::plan(self, passages),
            |passages, hash, place, build| TfIdf::build(self, passages, hash, place, build),
        )?;
        Ok(Box::new(TfIdf::open(&folder, &hash)?))
    }
}
