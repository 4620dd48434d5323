//! Knowledge about a sentence's mentions besides its words: chains, links, and facts of a knowledge base.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use sporran_kilt::{
    jsonl,
    kb::{KnowledgeBase, Part},
};

use super::Candidates;
use crate::{AliasTable, Chain, Link, LinkingOptions, Result};

/// Knowledge about a mention. The default is that of a mention without chain and link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// The index of its chain among the document's.
    pub chain: Option<usize>,
    /// The confidence that it belongs to its chain, 0 to 1; 0 without a chain.
    pub chained: f32,
    /// Other chains that it may belong to, with the confidence of each.
    pub others: Vec<(usize, f32)>,
    /// The entity of its link.
    pub entity: Option<String>,
    /// The types of that entity in the knowledge base, in order.
    pub types: Vec<String>,
}

/// Types of entities and properties between them, by the ids of an [`AliasTable`].
#[derive(Clone, Debug, Default)]
pub struct EntityFacts {
    types: FxHashMap<String, Vec<String>>,
    facts: FxHashMap<String, Vec<(String, String)>>,
}

impl EntityFacts {
    /// Reads the types and relations of the entities of a table; `None` if the options have no file of them.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn open(options: &LinkingOptions, table: &AliasTable) -> Result<Option<Self>> {
        let LinkingOptions { types, facts, .. } = options;
        if types.is_none() && facts.is_none() {
            return Ok(None);
        }
        let mut known = Self::default();
        let ids: FxHashSet<&str> = table.entities().iter().map(|entity| entity.id.as_str()).collect();
        if let Some(path) = types {
            let types: BTreeMap<String, Vec<String>> = jsonl::read_json(path)?;
            for (entity, types) in types.iter().filter(|(entity, _)| ids.contains(entity.as_str())) {
                types.iter().for_each(|kind| known.add_type(entity, kind));
            }
        }
        if let Some(path) = facts {
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

    /// Adds the type of an entity.
    pub fn add_type(&mut self, entity: &str, kind: &str) {
        self.types.entry(entity.to_owned()).or_default().push(kind.to_owned());
    }

    /// Adds a property between two entities.
    pub fn add_fact(&mut self, subject: &str, property: &str, object: &str) {
        self.facts.entry(subject.to_owned()).or_default().push((object.to_owned(), property.to_owned()));
    }

    /// The types of an entity, in order.
    fn types_of(&self, entity: &str) -> Vec<String> {
        let mut types = self.types.get(entity).cloned().unwrap_or_default();
        types.sort_unstable();
        types.dedup();
        types
    }

    /// The properties from one entity to another, in order.
    fn between(&self, subject: &str, object: &str) -> Vec<String> {
        let facts = self.facts.get(subject).map_or(&[][..], Vec::as_slice);
        let of = facts.iter().filter(|(other, _)| other == object).map(|(_, property)| property.clone());
        let mut properties: Vec<String> = of.collect();
        properties.sort_unstable();
        properties.dedup();
        properties
    }
}

/// The results for a document before relation prediction.
#[derive(Clone, Copy, Debug)]
pub struct Background<'a> {
    /// Its chains.
    pub chains: &'a [Chain],
    /// The link of each mention.
    pub links: &'a [Option<Link>],
    /// The types of entities and the facts between them.
    pub knowledge: Option<&'a EntityFacts>,
}

impl Background<'_> {
    /// Adds this knowledge to the candidates of a document.
    pub fn annotate(&self, candidates: &mut [Candidates]) {
        let mut known: Vec<Known> = vec![Known::default(); self.links.len()];
        for (chain, Chain { mentions, others, .. }) in self.chains.iter().enumerate() {
            for (at, sure) in mentions {
                (known[*at].chain, known[*at].chained) = (Some(chain), *sure);
            }
            for (at, sure) in others {
                known[*at].others.push((chain, *sure));
            }
        }
        for (known, link) in known.iter_mut().zip(self.links) {
            known.entity = link.as_ref().map(|link| link.entity.clone());
            if let (Some(facts), Some(entity)) = (self.knowledge, &known.entity) {
                known.types = facts.types_of(entity);
            }
        }
        for candidates in candidates {
            candidates.known = candidates.mentions.iter().map(|at| known[*at].clone()).collect();
            let Some(facts) = self.knowledge else { continue };
            let entity = |at: u32| candidates.known[at as usize].entity.as_deref();
            for (pair, found) in candidates.pairs.iter().zip(&mut candidates.facts) {
                if let (Some(subject), Some(object)) = (entity(pair.first), entity(pair.second)) {
                    *found = facts.between(subject, object);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Document, proposals, relations::sentences};

    #[test]
    fn the_types_and_properties_are_those_of_the_links() {
        let document = Document::new("d", "Ann was born. She left Rome.");
        let mentions = proposals(&document);
        let mut candidates = sentences(&mentions);
        let mut facts = EntityFacts::default();
        for kind in ["human", "artist", "human"] {
            facts.add_type("Q1", kind);
        }
        facts.add_type("Q9", "city");
        facts.add_fact("Q1", "P19", "Q2");
        facts.add_fact("Q1", "P20", "Q9");
        let chains = [
            Chain { mentions: vec![(0, 1.0), (1, 0.7)], representative: 0, others: vec![(2, 0.2)] },
            Chain { mentions: vec![(2, 1.0)], representative: 2, others: vec![] },
        ];
        let link = |entity: &str| Some(Link { entity: entity.into(), confidence: 0.6 });
        let links = [None, link("Q1"), link("Q2")];
        Background { chains: &chains, links: &links, knowledge: Some(&facts) }.annotate(&mut candidates);
        // Only the second sentence has two mentions.
        let [she, rome] = &candidates[0].known[..] else { panic!("{candidates:?}") };
        assert_eq!((she.chain, she.chained, &she.others), (Some(0), 0.7, &vec![]));
        assert_eq!((she.entity.as_deref(), she.types.join(" ")), (Some("Q1"), "artist human".into()));
        assert_eq!((rome.chain, rome.chained, &rome.others), (Some(1), 1.0, &vec![(0, 0.2)]));
        assert!(rome.types.is_empty());
        // From the subject to the object only.
        assert_eq!(candidates[0].facts, [vec!["P19".to_owned()], vec![]]);
    }
}
