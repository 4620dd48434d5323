//! Loads scorers of triples from finished runs: an embedding, a network or rules.

use std::path::Path;

use sporran_kilt::kb::KnowledgeBase;
use sporran_reasoner::{LinkModel, rules::RuleScorer};

use crate::{Result, run_dir::folder::check_finished};

/// The embedding or network of a folder.
pub(super) fn open(folder: &Path, kb: &KnowledgeBase) -> Result<LinkModel> {
    check_finished(folder)?;
    Ok(LinkModel::open(folder, kb)?)
}

/// The rules of a file, over the training part of a knowledge base.
pub(super) fn rules_over(kb: &KnowledgeBase, path: &Path) -> Result<RuleScorer> {
    check_finished(path)?;
    Ok(RuleScorer::open(path, kb)?)
}
