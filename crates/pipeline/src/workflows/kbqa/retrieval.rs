//! Passages for questions, from a store and a retriever.

use std::{path::Path, sync::Arc};

use sporran_config::Diagnostic;
use sporran_kilt::{Hit, Passage, PassageStore, Query, hash_json, korc::Question, observe::Observer};
use sporran_reasoner::question::{LivePassages, PassageFinder};
use sporran_retriever::{Retriever, dense::LiveDense};

use super::{options::ReasonOptions, texts::outside};
use crate::{
    Error, Result,
    source::store::PartHash,
    workflows::answer::{
        assemble::{Retrieval, open_retrieval, open_retrieval_with},
        check::live_dense,
    },
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

/// A retriever whose question encoder is trained with a reasoner.
pub(super) struct TrainedRetrieval(Retrieval<LiveDense>);

impl TrainedRetrieval {
    /// Opens the `[source]` and the `[retriever]` of a config with the question encoder `from`. Builds what is missing.
    ///
    /// # Errors
    /// [`Error::Config`] for a retriever that is not trained; errors of the source, an index or a model.
    pub(super) fn open(options: &ReasonOptions, from: &Path, observe: &mut Observer<'_>) -> Result<Self> {
        let fault = |key: &str, message: &str| Error::Config(vec![Diagnostic::of_config(key, message)]);
        let dense = live_dense(options.retriever.as_ref(), true);
        let dense = dense.map_err(|(key, message)| fault(&key, message))?;
        let source = options.source.as_ref();
        let source =
            source.ok_or_else(|| fault("source", "is missing; the retriever searches its passages"))?;
        open_retrieval_with(source, observe, |site| LiveDense::open(dense, Some(from), site)).map(Self)
    }

    /// The hash of everything that the passages depend on.
    pub(super) fn hash(&self) -> String {
        hash_json(&self.0.hashes)
    }

    /// What a training reads.
    pub(super) fn live(&self) -> LivePassages<'_> {
        LivePassages { index: &self.0.retriever, store: &self.0.store, query: &query }
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
