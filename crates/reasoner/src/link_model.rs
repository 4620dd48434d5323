//! The models that score triples, from their folders.

use std::path::Path;

use sporran_kilt::kb::KnowledgeBase;

use crate::{
    Result,
    embedding::{EmbeddingModel, TripleScorer},
    network::{GraphNetwork, Network},
};

/// A trained embedding or network over a knowledge base.
pub enum LinkModel {
    /// An embedding.
    Embedding(Box<EmbeddingModel>),
    /// A network over the graph of the knowledge base.
    Network(Box<GraphNetwork>),
}

impl LinkModel {
    /// Opens the folder of a model.
    ///
    /// # Errors
    /// Errors of the model's files, and a model of another knowledge base.
    pub fn open(folder: &Path, kb: &KnowledgeBase) -> Result<Self> {
        if Network::is_in(folder) {
            return Ok(Self::Network(Box::new(Network::open(folder)?.over(kb)?)));
        }
        let model = EmbeddingModel::open(folder)?;
        model.check(kb)?;
        Ok(Self::Embedding(Box::new(model)))
    }

    /// The model as a scorer of triples.
    #[must_use]
    pub fn scorer(&self) -> &dyn TripleScorer {
        match self {
            Self::Embedding(model) => model.as_ref(),
            Self::Network(network) => network.as_ref(),
        }
    }

    /// The network; `None` for an embedding.
    #[must_use]
    pub fn network(&self) -> Option<&GraphNetwork> {
        match self {
            Self::Embedding(_) => None,
            Self::Network(network) => Some(network),
        }
    }
}
