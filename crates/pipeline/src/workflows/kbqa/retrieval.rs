//! Passages for questions, from a store and a retriever.

use std::sync::Arc;

use sporran_kilt::{Hit, Passage, PassageStore, Query, hash_json, korc::Question, observe::Observer};
use sporran_reasoner::question::PassageFinder;
use sporran_retriever::Retriever;

use super::{options::ReasonOptions, texts::outside};
use crate::{
    Result,
    source::store::PartHash,
    workflows::answer::assemble::{Retrieval, open_retrieval},
};

/// Finds passages with a question and its document.
pub(super) struct Passages {
    store: Arc<PassageStore>,
    retriever: Box<dyn Retriever>,
    hashes: Vec<PartHash>,
}

impl Passages {
    /// Opens the `[source]` and the `[retriever]` of a config, if it has both. Builds what is missing.
    ///
    /// # Errors
    /// Errors of the source, an index or a model.
    pub(super) fn open(options: &ReasonOptions, observe: &mut Observer<'_>) -> Result<Option<Self>> {
        let (Some(source), Some(retriever)) = (&options.source, &options.retriever) else { return Ok(None) };
        let Retrieval { store, retriever, hashes } = open_retrieval(source, retriever, observe)?;
        Ok(Some(Self { store, retriever, hashes }))
    }

    /// The passages.
    pub(super) fn store(&self) -> &Arc<PassageStore> {
        &self.store
    }

    /// The hash of everything that the passages depend on.
    pub(super) fn hash(&self) -> String {
        hash_json(&self.hashes)
    }

    /// The hashes of the parts, for a manifest.
    pub(super) fn parts(&self) -> &[PartHash] {
        &self.hashes
    }

    fn search(&self, questions: &[Question], count: usize) -> Result<Vec<Vec<(Passage, f32)>>> {
        let queries: Vec<Query> = questions.iter().map(query).collect();
        let hits = self.retriever.retrieve(&queries, count)?;
        let passage = |hit: &Hit| (self.store.passage(hit.passage), hit.score);
        let found = hits.iter().map(|hits| hits.iter().map(passage).collect()).collect();
        self.store.sound()?;
        Ok(found)
    }
}

/// The query of a question. The question is first, so that an encoder that cuts its input reads it.
fn query(question: &Question) -> Query {
    Query::of_text(question.id.clone(), format!("{} {}", question.question, question.document()))
}

impl PassageFinder for Passages {
    fn find(
        &self,
        questions: &[Question],
        count: usize,
    ) -> sporran_reasoner::Result<Vec<Vec<(Passage, f32)>>> {
        self.search(questions, count).map_err(outside)
    }
}
