//! BM25 and tf-idf as kinds of retriever: indexes that are built once.

use std::path::PathBuf;

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
    site::{
        Items, NewIndex, NewPart, PartFolders, PartSite, Passages, PlanIndex, Site, folders_of, part_name,
        passages,
    },
};

/// The folder of a sparse index and the hash of its passages.
fn index(
    kind: &'static str,
    options: &impl Serialize,
    site: &mut dyn Site,
    plan: &PlanIndex<'_>,
    build: impl Fn(Passages<'_>, &str, Place, Build<'_>) -> Result<()>,
    merge: impl Fn(&[PathBuf], (&str, usize), Place, Build<'_>) -> Result<()>,
) -> Result<(PathBuf, String)> {
    let store = site.store().clone();
    let key = hash_json(&(Tagged { kind, options }, store.hash()));
    let new = NewIndex { kind, key, items: Items::Passages };
    site.announce(&new, plan)?;
    let parts = site.parts(&named(kind, options));
    let folder = site.index(new, &mut |place, advance| {
        let mut progress = |progress| {
            if let Progress::Passages(done) = progress {
                advance(done);
            }
        };
        if let Some(parts) = &parts {
            return merge(parts, (store.hash(), store.len()), place, Build::new(&mut progress));
        }
        build(passages(&store, PassageId(0)), store.hash(), place, Build::new(&mut progress))
    })?;
    Ok((folder, store.hash().to_owned()))
}

/// The name of the parts of an index.
fn named(kind: &'static str, options: &impl Serialize) -> String {
    part_name(kind, &hash_json(&Tagged { kind, options }))
}

/// Builds the index of a shard's pages.
fn build_part(
    kind: &'static str,
    options: &impl Serialize,
    site: &mut dyn PartSite,
    build: impl Fn(Passages<'_>, &str, Place, Build<'_>) -> Result<()>,
) -> Result<()> {
    let Some(store) = site.pages() else { return Ok(()) };
    let key = hash_json(&(Tagged { kind, options }, store.hash()));
    let new = NewPart { name: named(kind, options), key, passages: store.len() };
    site.part(new, &mut |place, advance| {
        let mut progress = |progress| {
            if let Progress::Passages(done) = progress {
                advance(done);
            }
        };
        build(passages(&store, PassageId(0)), store.hash(), place, Build::new(&mut progress))
    })
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
            |parts, passages, place, build| Bm25::merge(self, parts, passages, place, build),
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

    fn build_parts(&self, site: &mut dyn PartSite) -> Result<()> {
        build_part("bm25", self, site, |passages, hash, place, build| {
            Bm25::build(self, passages, hash, place, build)
        })
    }

    fn open_shards(
        &self,
        shards: &[(PathBuf, PartFolders)],
        site: &mut dyn Site,
    ) -> Result<Option<Box<dyn Retriever>>> {
        let folders = folders_of(shards, &named("bm25", self))?;
        Ok(Some(Box::new(Bm25::open_parts(self, &folders, site.store().len())?)))
    }

    fn has_batches(&self) -> bool {
        false
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
            |parts, passages, place, build| TfIdf::merge(self, parts, passages, place, build),
        )?;
        Ok(Box::new(TfIdf::open(&folder, &hash)?))
    }

    fn build_parts(&self, site: &mut dyn PartSite) -> Result<()> {
        build_part("tfidf", self, site, |passages, hash, place, build| {
            TfIdf::build(self, passages, hash, place, build)
        })
    }

    fn open_shards(
        &self,
        shards: &[(PathBuf, PartFolders)],
        site: &mut dyn Site,
    ) -> Result<Option<Box<dyn Retriever>>> {
        let folders = folders_of(shards, &named("tfidf", self))?;
        Ok(Some(Box::new(TfIdf::open_parts(self, &folders, site.store().len())?)))
    }

    fn has_batches(&self) -> bool {
        false
    }
}
