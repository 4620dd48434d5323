//! Dense retrieval as a kind of retriever: checks, and an index that is built once.

use sporran_config::{Document, Overrides};
use sporran_kilt::{PassageId, hash_json};

use super::{Dense, DenseOptions, Progress, Recall, Report, distance};
use crate::{
    PassageScorer, Result, Retriever,
    kind::RetrieverKind,
    site::{IndexRecall, Items, NewIndex, Site, passages},
};

impl DenseOptions {
    /// The checks of [`RetrieverKind::check`]; without one of the query encoder's folder where it is yet to be trained.
    pub fn check_in(&self, key: &str, is_trained: bool, document: &mut Document<'_>) {
        if let Err(error) = self.check() {
            document.report_key(key, error.to_string());
        }
        match self.similarity() {
            Ok(similarity) => {
                if let Err(error) = distance::check(&self.index, similarity) {
                    document.report_key(&format!("{key}.index"), error.to_string());
                }
            }
            Err(error) => document.report_key(key, error.to_string()),
        }
        if is_trained {
            document.check_encoder(&format!("{key}.model"), &self.model);
        }
        if let Some(folder) = &self.passage_model {
            document.check_encoder(&format!("{key}.passage-model"), folder);
        }
    }

    /// Opens the retriever, building its index if it does not exist.
    ///
    /// # Errors
    /// As [`RetrieverKind::open`].
    pub fn open_index(&self, site: &mut dyn Site) -> Result<Dense> {
        let (key, store) = (self.key()?, site.store().clone());
        let index = NewIndex {
            kind: "dense",
            key: hash_json(&("dense", &key, store.hash())),
            items: Items::Passages,
        };
        let folder = site.index(index, &mut |place, advance| {
            // The model was hashed before it is loaded.
            let (options, before) = (self.clone(), key.clone());
            let place = place.checked(move || match options.key() {
                Ok(now) if now == before => Ok(()),
                _ => {
                    Err(sporran_kilt::Error::Changed { path: options.passage_model.unwrap_or(options.model) })
                }
            });
            let mut progress = |progress| {
                if let Progress::Encoded(done) = progress {
                    advance(done);
                }
            };
            let from = |from: PassageId| passages(&store, from);
            Dense::build(self, from, store.hash(), place, &mut progress)
        })?;
        site.depends_on("search", None, hash_json(self));
        if self.passage_model.is_some() {
            let hash = hash_json(&site.files(&self.model)?);
            site.depends_on("queries", Some(&self.model), hash);
        }
        let dense = Dense::open(self, &folder, store.hash())?;
        let Report { recall, lost, unrepaired } = dense.index().report();
        if let Some(Recall { queries, k, recall }) = recall {
            let repaired = lost - unrepaired;
            site.record_recall(IndexRecall { index: folder, recall, k, queries, repaired, lost: unrepaired });
        }
        Ok(dense)
    }
}

impl RetrieverKind for DenseOptions {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        self.check_in(key, true, document);
    }

    fn overrides(&self, key: &str, found: &mut Overrides) -> Result<()> {
        let overrides = DenseOptions::overrides(self)?.into_iter();
        found.extend(overrides.map(|(option, values)| (format!("{key}.{option}"), values)));
        Ok(())
    }

    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>> {
        Ok(Box::new(self.open_index(site)?))
    }

    fn open_scorer(&self, site: &mut dyn Site) -> Result<Option<Box<dyn PassageScorer>>> {
        Ok(Some(Box::new(self.open_index(site)?)))
    }
}
