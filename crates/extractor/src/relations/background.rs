//! Knowledge about a sentence's mentions besides its words: chains, possible entities, and facts of a
//! knowledge base.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use sporran_kilt::{
    jsonl,
    kb::{KnowledgeBase, Part},
};

use super::{Candidates, features::hash};
use crate::{AliasTable, Chain, Document, EntityType, Link, LinkingOptions, Mention, MentionForm, Result};

/// Knowledge about a mention.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The type of its entity: that of its chain's representative, or its own.
    pub kind: EntityType,
    /// The confidence that it belongs to its chain, 0 to 1; 0 without a chain.
    pub chained: f32,
    /// Sentences between it and its chain's representative; none without a chain.
    pub distance: Option<usize>,
    /// The confidence of its link, 0 to 1; 0 without a link.
    pub linked: f32,
    /// The hashed types of the possible entities of its name, or of its chain's.
    pub types: Vec<u64>,
}

impl Known {
    /// A mention without chain and link.
    #[must_use]
    pub fn alone(mention: &Mention) -> Self {
        Self { kind: mention.kind, chained: 0.0, distance: None, linked: 0.0, types: Vec::new() }
    }
}

/// Types of entities and properties between them, by the ids of an [`AliasTable`].
#[derive(Clone, Debug, Default)]
pub struct EntityFacts {
    types: FxHashMap<String, Vec<u64>>,
    facts: FxHashMap<String, Vec<(String, u64)>>,
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
        self.types.entry(entity.to_owned()).or_default().push(hash(kind));
    }

    /// Adds a property between two entities.
    pub fn add_fact(&mut self, subject: &str, property: &str, object: &str) {
        self.facts.entry(subject.to_owned()).or_default().push((object.to_owned(), hash(property)));
    }

    fn between(&self, subject: &str, object: &str) -> impl Iterator<Item = u64> {
        let facts = self.facts.get(subject).map_or(&[][..], Vec::as_slice);
        facts.iter().filter(move |(other, _)| other == object).map(|(_, property)| *property)
    }
}

/// The number of a name's most frequent meanings that are used.
const MEANINGS: usize = 3;

/// The results for a document before relation prediction.
#[derive(Clone, Copy, Debug)]
pub struct Background<'a> {
    /// Its chains.
    pub chains: &'a [Chain],
    /// The link of each mention.
    pub links: &'a [Option<Link>],
    /// The possible entities of names, and the facts about them.
    pub knowledge: Option<(&'a AliasTable, &'a EntityFacts)>,
}

impl Background<'_> {
    /// Adds this knowledge to the candidates of a document.
    pub fn annotate(&self, document: &Document, mentions: &[Mention], candidates: &mut [Candidates]) {
        let mut known: Vec<Known> = mentions.iter().map(Known::alone).collect();
        let mut names: Vec<usize> = (0..mentions.len()).collect();
        for chain in self.chains {
            let best = &mentions[chain.representative];
            for &(at, sure) in &chain.mentions {
                let distance = mentions[at].sentence.abs_diff(best.sentence);
                known[at] = Known { chained: sure, distance: Some(distance), ..known[at].clone() };
                if best.form == MentionForm::Name {
                    known[at].kind = best.kind;
                    names[at] = chain.representative;
                }
            }
        }
        for (known, link) in known.iter_mut().zip(self.links) {
            known.linked = link.as_ref().map_or(0.0, |link| link.confidence);
        }
        let meant: Vec<Vec<&str>> = match self.knowledge {
            Some((table, _)) => {
                let of = |&name: &usize| meanings(table, document, &mentions[name]);
                names.iter().map(of).collect()
            }
            None => Vec::new(),
        };
        if let Some((_, facts)) = self.knowledge {
            for (known, meant) in known.iter_mut().zip(&meant) {
                let types = meant.iter().filter_map(|id| facts.types.get(*id)).flatten();
                known.types = types.copied().collect();
                known.types.sort_unstable();
                known.types.dedup();
            }
        }
        for candidates in candidates {
            candidates.known = candidates.mentions.iter().map(|at| known[*at].clone()).collect();
            let Some((_, facts)) = self.knowledge else { continue };
            for (pair, found) in candidates.pairs.iter().zip(&mut candidates.facts) {
                let meant = |at: u32| &meant[candidates.mentions[at as usize]];
                for subject in meant(pair.first) {
                    for object in meant(pair.second) {
                        found.extend(facts.between(subject, object));
                    }
                }
                found.sort_unstable();
                found.dedup();
            }
        }
    }
}

/// The ids of a name's most frequent meanings.
fn meanings<'a>(table: &'a AliasTable, document: &Document, name: &Mention) -> Vec<&'a str> {
    if name.form != MentionForm::Name || name.kind == EntityType::Date {
        return Vec::new();
    }
    let mut found: Vec<(&str, f32)> = table
        .candidates(document.slice(name.span).unwrap_or_default())
        .map(|(entity, count)| (entity.id.as_str(), count))
        .collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    found.into_iter().take(MEANINGS).map(|(id, _)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AliasTableBuilder, proposals, relations::sentences};

    #[test]
    fn a_pronoun_gets_the_knowledge_about_its_chain() {
        let document = Document::new("d", "Ann was born. She left Rome.");
        let mut mentions = proposals(&document);
        mentions[0].kind = EntityType::Person;
        let mut candidates = sentences(&mentions);
        let mut names = AliasTableBuilder::default();
        names.add("Ann", "Q1", 2.0);
        names.add("Rome", "Q2", 1.0);
        let mut facts = EntityFacts::default();
        facts.add_type("Q1", "human");
        facts.add_fact("Q1", "P19", "Q2");
        let chains = [Chain { mentions: vec![(0, 1.0), (1, 0.7)], representative: 0 }];
        let link = Some(Link { entity: "Q2".into(), confidence: 0.6 });
        let links = [None, None, link];
        let table = names.build();
        let background = Background { chains: &chains, links: &links, knowledge: Some((&table, &facts)) };
        background.annotate(&document, &mentions, &mut candidates);
        // Only the second sentence has two mentions.
        let [she, rome] = &candidates[0].known[..] else { panic!("{candidates:?}") };
        assert_eq!((she.kind, she.chained, she.distance), (EntityType::Person, 0.7, Some(1)));
        assert_eq!((she.types.as_slice(), she.linked), (&[hash("human")][..], 0.0));
        assert_eq!((rome.chained, rome.distance, rome.linked), (0.0, None, 0.6));
        assert_eq!(candidates[0].facts, [vec![hash("P19")], vec![]]);
    }
}
