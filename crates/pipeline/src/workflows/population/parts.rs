//! Loads the components of a config.

use std::{collections::BTreeMap, path::Path};

use sporran_extractor::{
    AliasTable, FactExtractor, Linker, LinkerOptions, Relations,
    relations::{EntityFacts, open as open_relations},
    triplets::{TRIPLETS, TripletReader, TripletTraining},
};
use sporran_kilt::{
    jsonl,
    kb::{KnowledgeBase, Part},
};

use super::options::{LinkingOptions, PopulationOptions, RelationsOptions};
use crate::Result;

/// Loads all components of the config.
pub(super) fn open(options: &PopulationOptions) -> Result<FactExtractor> {
    let relations = &options.relations;
    let (linker, knowledge) = match &options.linker {
        Some(linking) => {
            let table = AliasTable::load(&linking.aliases)?;
            let linker = linker(table, &linking.decision, linking.facts.as_deref())?;
            let knowledge = knowledge(linking, linker.table())?;
            (Some(linker), knowledge)
        }
        None => (None, None),
    };
    Ok(FactExtractor {
        mentions: options.mentions.open()?,
        coreference: options.coreference.open(options.mentions.types.as_deref())?,
        linker,
        knowledge,
        relations: self::relations(relations)?,
    })
}

/// The relation classifier.
fn relations(options: &RelationsOptions) -> Result<Relations> {
    let RelationsOptions { model, device, precision, seq2seq, .. } = options;
    Ok(if seq2seq.is_some() || model.join(TRIPLETS).is_file() {
        let named = seq2seq.as_ref().and_then(TripletTraining::of_config);
        Relations::Triplets(TripletReader::load(model, named, *device, *precision)?.into())
    } else {
        Relations::Pairs(open_relations(model, *device, *precision)?)
    })
}

/// A linker with a table of names, and with the facts of a knowledge base if there is one.
pub(crate) fn linker(table: AliasTable, decision: &LinkerOptions, facts: Option<&Path>) -> Result<Linker> {
    let linker = Linker::new(table, decision.clone());
    let Some(path) = facts else { return Ok(linker) };
    let base = KnowledgeBase::open(path)?;
    let ends = base.triples(Part::Train).iter();
    Ok(linker
        .with_facts(ends.map(|triple| (base.entity_name(triple.subject), base.entity_name(triple.object)))))
}

/// The types and relations of the entities of a table; `None` if the config has no file of them.
pub(super) fn knowledge(linking: &LinkingOptions, table: &AliasTable) -> Result<Option<EntityFacts>> {
    if linking.types.is_none() && linking.facts.is_none() {
        return Ok(None);
    }
    let mut known = EntityFacts::default();
    let ids: rustc_hash::FxHashSet<&str> = table.entities().iter().map(|entity| entity.id.as_str()).collect();
    if let Some(path) = &linking.types {
        let types: BTreeMap<String, Vec<String>> = jsonl::read_json(path)?;
        for (entity, types) in types.iter().filter(|(entity, _)| ids.contains(entity.as_str())) {
            types.iter().for_each(|kind| known.add_type(entity, kind));
        }
    }
    if let Some(path) = &linking.facts {
        let base = KnowledgeBase::open(path)?;
        for triple in base.triples(Part::Train) {
            let subject = base.entity_name(triple.subject);
            let object = base.entity_name(triple.object);
            if ids.contains(subject) && ids.contains(object) {
                known.add_fact(subject, base.relation_name(triple.relation), object);
            }
        }
    }
    Ok(Some(known))
}
