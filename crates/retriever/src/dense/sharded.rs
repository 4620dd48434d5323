//! Search over the vectors of consecutive parts of the passages.

use std::path::PathBuf;

use sporran_kilt::{Hit, PassageId, Query, Template, hash_json};

use super::{
    BiEncoder, DenseOptions, Encoder, FlatOptions, Index, IndexOptions, Origin, Progress, VectorIndex,
    fingerprint::encoder_hash,
    part,
    retriever::{load_query_encoder, query_texts},
};
use crate::{
    Error, PassageFilter, Result, Retriever,
    fusion::best_of_parts,
    site::{Items, NewIndex, Site},
};

/// An encoder of queries and an index for each part. Each vector is compared with a query alone, so the ranking is that of one
/// index over all vectors.
pub(super) struct ShardedDense {
    encoder: BiEncoder,
    template: Option<Template>,
    /// The first passage of each part, and its index.
    parts: Vec<(u32, Index)>,
}

impl ShardedDense {
    /// Opens an index for each part of the vectors, building those that do not exist.
    ///
    /// # Errors
    /// [`Error::Option`] for an index other than `flat` without rescoring, whose results depend on all vectors;
    /// [`Error::Part`] for parts that are not those of all passages; those of [`Index::open`] and of loading the encoder.
    pub(super) fn open(options: &DenseOptions, folders: &[PathBuf], site: &mut dyn Site) -> Result<Self> {
        options.check()?;
        if !matches!(options.index, IndexOptions::Flat(FlatOptions { rescore: 0, .. })) {
            return Err(Error::Option {
                option: "base.index",
                expected: "`flat` without `rescore`, which gives the ranking of all vectors in parts",
                found: options.index.describe(),
            });
        }
        let store = site.store().clone();
        let (similarity, key) = (options.similarity()?, options.key()?);
        let encoder_hash = encoder_hash(options)?;
        let whole = Origin { encoder_hash: &encoder_hash, passages_hash: store.hash() };
        let (mut parts, mut next) = (Vec::new(), 0);
        for folder in folders {
            let vectors = part::Part::open(folder, whole)?;
            if vectors.first() != next {
                let (expected, found) = (format!("passages from {next} on"), vectors.first().to_string());
                return Err(Error::Part { path: folder.clone(), expected, found });
            }
            let passages = hash_json(&(store.hash(), vectors.first(), vectors.len()));
            let origin = Origin { encoder_hash: &encoder_hash, passages_hash: &passages };
            let new = NewIndex {
                kind: "dense",
                key: hash_json(&("dense", &key, &passages)),
                items: Items::Passages,
            };
            let index = site.index(new, &mut |place, advance| {
                let mut progress = |progress| {
                    if let Progress::Encoded(done) = progress {
                        advance(done);
                    }
                };
                vectors.index(&options.index, similarity, origin, place, &mut progress)
            })?;
            parts.push((next as u32, Index::open(&options.index, similarity, origin, &index)?));
            next += vectors.len();
        }
        if next != store.len() {
            let path = folders.first().cloned().unwrap_or_default();
            let [expected, found] = [store.len(), next].map(|count| format!("{count} passages in all parts"));
            return Err(Error::Part { path, expected, found });
        }
        let (encoder, template) = load_query_encoder(options)?;
        if let Some((_, index)) = parts.first().filter(|(_, index)| index.dim() != encoder.dim()) {
            return Err(Error::Option {
                option: "model",
                expected: "an encoder whose vectors are as wide as those of `passage-model`",
                found: format!("{} values, and {} there", encoder.dim(), index.dim()),
            });
        }
        Ok(Self { encoder, template, parts })
    }

    fn search(
        &self,
        queries: &[Query],
        k: usize,
        filter: Option<&PassageFilter<'_>>,
    ) -> Result<Vec<Vec<Hit>>> {
        if queries.is_empty() {
            return Ok(Vec::new());
        }
        let texts: Vec<&str> = queries.iter().map(|query| query.text.as_str()).collect();
        let texts = query_texts(self.template.as_ref(), &texts);
        let vectors = self.encoder.encode(&texts.iter().map(String::as_str).collect::<Vec<_>>())?;
        let mut all: Vec<Vec<Hit>> = queries.iter().map(|_| Vec::new()).collect();
        for (first, index) in &self.parts {
            let found = match filter {
                None => index.search(&vectors, k, None)?,
                Some(filter) => index.search(&vectors, k, Some(&|id| filter(PassageId(id + first))))?,
            };
            for (hits, found) in all.iter_mut().zip(found) {
                hits.extend(
                    found.into_iter().map(|(id, score)| Hit { passage: PassageId(id + first), score }),
                );
            }
        }
        Ok(all.into_iter().map(|hits| best_of_parts(hits, k)).collect())
    }
}

impl Retriever for ShardedDense {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        self.search(queries, k, None)
    }

    fn retrieve_filtered(
        &self,
        queries: &[Query],
        k: usize,
        filter: &PassageFilter<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        self.search(queries, k, Some(filter))
    }
}
