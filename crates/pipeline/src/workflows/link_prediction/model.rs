//! Loads scorers of triples: an embedding, a network or rules.

use std::path::Path;

use sporran_kilt::kb::{KnowledgeBase, Part};
use sporran_reasoner::{
    embedding::{EmbeddingModel, TripleScorer},
    network::{GraphNetwork, Network},
    rules::{self, ApplyOptions, Graph, RuleBase, RuleScorer},
};

use crate::{Result, run_dir::folder::check_finished};

/// A trained embedding or network over a knowledge base.
pub(super) enum LinkModel {
    Embedding(Box<EmbeddingModel>),
    Network(Box<GraphNetwork>),
}

impl LinkModel {
    pub(super) fn open(folder: &Path, kb: &KnowledgeBase) -> Result<Self> {
        check_finished(folder)?;
        if Network::is_in(folder) {
            return Ok(Self::Network(Box::new(Network::open(folder)?.over(kb)?)));
        }
        let model = EmbeddingModel::open(folder)?;
        model.check(kb)?;
        Ok(Self::Embedding(Box::new(model)))
    }

    pub(super) fn scorer(&self) -> &dyn TripleScorer {
        match self {
            Self::Embedding(model) => model.as_ref(),
            Self::Network(network) => network.as_ref(),
        }
    }

    pub(super) fn network(&self) -> Option<&GraphNetwork> {
        match self {
            Self::Embedding(_) => None,
            Self::Network(network) => Some(network),
        }
    }
}

/// The rules of a file, over the training part of a knowledge base.
pub(super) fn rules_over(kb: &KnowledgeBase, path: &Path) -> Result<RuleScorer> {
    check_finished(path)?;
    let graph = Graph::of(kb.triples(Part::Train));
    Ok(RuleScorer::new(RuleBase::new(graph, rules::load(path, kb)?, ApplyOptions::default()), kb))
}
