//! The questions and the knowledge base of a config.

use std::path::Path;

use sporran_kilt::{
    kb::{EntityId, KnowledgeBase},
    korc::{Question, load},
};
use sporran_reasoner::korc::{Entities, EntityTables, label_relations};

use super::{
    options::ReasonOptions,
    populated::{Evidence, merge},
};
use crate::Result;

/// The knowledge base of a config, with names of entities and relations, and with the facts of `[populated]`.
pub(super) fn knowledge(options: &ReasonOptions) -> Result<(KnowledgeBase, Evidence)> {
    let mut kb = KnowledgeBase::open(&options.kb)?;
    if let Some(path) = &options.relations {
        label_relations(path, &mut kb)?;
    }
    if let Some(path) = &options.entities {
        let tables = EntityTables { tables: vec![path.clone()], ..EntityTables::default() };
        let entities = Entities::load(&tables, &kb)?;
        for number in 0..kb.entity_count() as u32 {
            let id = EntityId(number);
            for (at, name) in entities.names(id).iter().enumerate() {
                if at == 0 { kb.set_label(id, name) } else { kb.add_alias(id, name) }
            }
        }
    }
    let evidence = merge(&options.populated, &mut kb)?;
    Ok((kb, evidence))
}

/// The tests of a config with their names, limited to `data.limit` questions.
pub(super) fn tests(options: &ReasonOptions) -> Result<Vec<(&'static str, &Path, Vec<Question>)>> {
    let files = [("iid", &options.data.iid), ("ood", &options.data.ood)];
    let mut tests = Vec::new();
    for (name, path) in files {
        if let Some(path) = path {
            let mut questions = load(path)?;
            questions.truncate(options.data.limit.unwrap_or(usize::MAX));
            tests.push((name, path.as_path(), questions));
        }
    }
    Ok(tests)
}

/// The training and the validation questions of a config.
pub(super) fn training(options: &ReasonOptions) -> Result<[Vec<Question>; 2]> {
    let mut questions = Vec::new();
    for path in &options.data.train {
        questions.extend(load(path)?);
    }
    let valid = options.data.valid.as_ref().map(load).transpose()?.unwrap_or_default();
    Ok([questions, valid])
}
