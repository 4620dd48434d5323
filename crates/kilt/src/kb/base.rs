//! The knowledge base.

use std::path::Path;

use super::{EntityId, Names, Part, RelationId, Triple, TripleIndex};
use crate::{Error, Result};

/// Entities, relations, their labels, and triples in three parts, with hard negatives if a data set has them.
///
/// Every id in its triples is valid. Triples are in input order; [`TripleIndex`] builds a set of them.
#[derive(Clone, Debug, Default)]
pub struct KnowledgeBase {
    entities: LabelledIds,
    relations: LabelledIds,
    triples: [Vec<Triple>; 3],
    negatives: [Vec<Triple>; 3],
}

/// Ids with their names: for each a label and then aliases, if known.
#[derive(Clone, Debug, Default)]
pub struct LabelledIds {
    ids: Names,
    /// Shorter than `ids` if the last ones have no label.
    called: Vec<Vec<String>>,
}

impl LabelledIds {
    /// The ids, in the order of their numbers.
    #[must_use]
    pub fn ids(&self) -> &Names {
        &self.ids
    }

    fn called(&self, number: u32) -> &[String] {
        self.called.get(number as usize).map_or(&[], Vec::as_slice)
    }

    fn call(&mut self, number: u32, label: &str, first: bool) {
        let at = number as usize;
        if self.called.len() <= at {
            self.called.resize(at + 1, Vec::new());
        }
        let called = &mut self.called[at];
        let known = called.iter().position(|known| known == label);
        match (known, first) {
            (Some(at), true) => called[..=at].rotate_right(1),
            (Some(_), false) => {}
            (None, true) => called.insert(0, label.to_owned()),
            (None, false) => called.push(label.to_owned()),
        }
    }
}

impl KnowledgeBase {
    /// Loads a folder. Triples are in `train.txt`, `valid.txt` and `test.txt`. The endings `.tsv` and `.nt`
    /// are possible too, each also compressed with `.gz` or `.zst`. Only the first file is required, and may
    /// be named `triples.tsv`. Hard negatives are in `valid_negatives.txt` and `test_negatives.txt`.
    /// Alternatively, the folder contains Wikidata5M's files (`wikidata5m_transductive_train.txt` and so on).
    /// Each line of a `.txt` or `.tsv` file has a subject, a relation and an object, separated by tabs; see
    /// [`load_file`](Self::load_file). Names
    /// of ids are in `entities.tsv` and `relations.tsv`, Wikidata5M's `wikidata5m_entity.txt` and
    /// `wikidata5m_relation.txt`, or CoDEx's `entity_text.tsv`; see [`read_names`](super::read_names).
    ///
    /// A path to a file is read with [`load_file`](Self::load_file) as the training part.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Record`] with file and line; [`Error::Empty`] for a training part without triples.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut kb = Self::default();
        if path.is_dir() {
            kb.load_folder(path)?;
        } else {
            kb.load_file(path, Part::Train)?;
            if kb.triples(Part::Train).is_empty() {
                return Err(Error::Empty { path: path.to_owned(), what: "triple" });
            }
        }
        tracing::debug!(
            path = %path.display(), entities = kb.entity_count(), relations = kb.relation_count(),
            train = kb.triples(Part::Train).len(), "knowledge base read"
        );
        Ok(kb)
    }

    /// The number of entities; all ids are smaller.
    #[must_use]
    pub fn entity_count(&self) -> usize {
        self.entities.ids.len()
    }

    /// The number of relations; all ids are smaller.
    #[must_use]
    pub fn relation_count(&self) -> usize {
        self.relations.ids.len()
    }

    /// The entities.
    #[must_use]
    pub fn entities(&self) -> &LabelledIds {
        &self.entities
    }

    /// The relations.
    #[must_use]
    pub fn relations(&self) -> &LabelledIds {
        &self.relations
    }

    /// The entity with a name, such as `Q42`.
    #[must_use]
    pub fn entity(&self, name: &str) -> Option<EntityId> {
        self.entities.ids.number(name).map(EntityId)
    }

    /// The relation with a name, such as `P31`.
    #[must_use]
    pub fn relation(&self, name: &str) -> Option<RelationId> {
        self.relations.ids.number(name).map(RelationId)
    }

    /// An entity's name in its files; empty for an id of another knowledge base.
    #[must_use]
    pub fn entity_name(&self, id: EntityId) -> &str {
        self.entities.ids.name(id.index()).unwrap_or_default()
    }

    /// A relation's name in its files; empty for an id of another knowledge base.
    #[must_use]
    pub fn relation_name(&self, id: RelationId) -> &str {
        self.relations.ids.name(id.index()).unwrap_or_default()
    }

    /// The label of an entity, or its id without a label.
    #[must_use]
    pub fn label(&self, id: EntityId) -> &str {
        self.entities.called(id.0).first().map_or_else(|| self.entity_name(id), String::as_str)
    }

    /// The label of a relation, or its id without a label.
    #[must_use]
    pub fn relation_label(&self, id: RelationId) -> &str {
        self.relations.called(id.0).first().map_or_else(|| self.relation_name(id), String::as_str)
    }

    /// The label and aliases of an entity, the label first.
    #[must_use]
    pub fn labels(&self, id: EntityId) -> &[String] {
        self.entities.called(id.0)
    }

    /// The label and aliases of a relation, the label first.
    #[must_use]
    pub fn relation_labels(&self, id: RelationId) -> &[String] {
        self.relations.called(id.0)
    }

    /// The triples of a part, in the order of its file.
    #[must_use]
    pub fn triples(&self, part: Part) -> &[Triple] {
        &self.triples[part as usize]
    }

    /// The number of triples of a part with an entity or a relation that no training triple has.
    #[must_use]
    pub fn unseen(&self, part: Part) -> usize {
        let mut entities = vec![false; self.entity_count()];
        let mut relations = vec![false; self.relation_count()];
        for triple in self.triples(Part::Train) {
            entities[triple.subject.index()] = true;
            entities[triple.object.index()] = true;
            relations[triple.relation.index()] = true;
        }
        let is_seen = |triple: &&Triple| {
            entities[triple.subject.index()]
                && entities[triple.object.index()]
                && relations[triple.relation.index()]
        };
        self.triples(part).len() - self.triples(part).iter().filter(is_seen).count()
    }

    /// The triples of a part, to change.
    pub(super) fn triples_mut(&mut self, part: Part) -> &mut Vec<Triple> {
        &mut self.triples[part as usize]
    }

    /// The hard negatives of a part: plausible triples known to be wrong.
    #[must_use]
    pub fn negatives(&self, part: Part) -> &[Triple] {
        &self.negatives[part as usize]
    }

    /// Look-ups over some parts.
    #[must_use]
    pub fn index(&self, parts: &[Part]) -> TripleIndex {
        TripleIndex::new(parts.iter().flat_map(|&part| self.triples(part)))
    }

    /// The entity with a name; creates it if it is new.
    ///
    /// # Errors
    /// [`Error::Argument`] beyond 2^32 - 2 entities.
    pub fn add_entity(&mut self, name: &str) -> Result<EntityId> {
        self.entities.ids.intern(name).map(EntityId).ok_or_else(|| full("entities"))
    }

    /// The relation with a name; creates it if it is new.
    ///
    /// # Errors
    /// [`Error::Argument`] beyond 2^32 - 2 relations.
    pub fn add_relation(&mut self, name: &str) -> Result<RelationId> {
        self.relations.ids.intern(name).map(RelationId).ok_or_else(|| full("relations"))
    }

    /// Appends a triple to a part.
    ///
    /// # Errors
    /// [`Error::Argument`] for an id that this knowledge base lacks.
    pub fn add(&mut self, part: Part, triple: Triple) -> Result<()> {
        self.check(triple)?;
        self.triples[part as usize].push(triple);
        Ok(())
    }

    /// Appends a hard negative to a part.
    ///
    /// # Errors
    /// [`Error::Argument`] for an id that this knowledge base lacks.
    pub fn add_negative(&mut self, part: Part, triple: Triple) -> Result<()> {
        self.check(triple)?;
        self.negatives[part as usize].push(triple);
        Ok(())
    }

    fn check(&self, Triple { subject, relation, object }: Triple) -> Result<()> {
        let entities = self.entity_count();
        let fits = subject.index() < entities && object.index() < entities;
        if fits && relation.index() < self.relation_count() {
            return Ok(());
        }
        Err(Error::Argument(format!(
            "expected ids below {entities} (entities) and {} (relations), found the triple ({}, {}, {})",
            self.relation_count(),
            subject.0,
            relation.0,
            object.0
        )))
    }

    /// Sets the label of an entity.
    pub fn set_label(&mut self, id: EntityId, label: &str) {
        self.entities.call(id.0, label, true);
    }

    /// Adds an alias of an entity.
    pub fn add_alias(&mut self, id: EntityId, alias: &str) {
        self.entities.call(id.0, alias, false);
    }

    /// Sets the label of a relation.
    pub fn set_relation_label(&mut self, id: RelationId, label: &str) {
        self.relations.call(id.0, label, true);
    }

    /// Adds an alias of a relation.
    pub fn add_relation_alias(&mut self, id: RelationId, alias: &str) {
        self.relations.call(id.0, alias, false);
    }
}

fn full(what: &str) -> Error {
    Error::Argument(format!("expected at most {} {what}, found more", u32::MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_precedes_aliases_and_ids_replace_missing_labels() {
        let mut kb = KnowledgeBase::default();
        let (a, b) = (kb.add_entity("Q1").unwrap(), kb.add_entity("Q2").unwrap());
        let relation = kb.add_relation("P1").unwrap();
        kb.add_alias(b, "cosmos");
        kb.set_label(b, "universe");
        kb.add_alias(b, "cosmos");
        assert_eq!(kb.labels(b), ["universe", "cosmos"]);
        kb.set_label(b, "cosmos");
        assert_eq!(kb.labels(b), ["cosmos", "universe"]);
        assert_eq!((kb.label(a), kb.label(b), kb.relation_label(relation)), ("Q1", "cosmos", "P1"));
        assert_eq!((kb.entity("Q2"), kb.entity("Q3"), kb.relation("P1")), (Some(b), None, Some(relation)));
    }

    #[test]
    fn triples_of_names_that_training_lacks_are_counted() {
        let mut kb = KnowledgeBase::default();
        for id in ["Q1", "Q2", "Q3"] {
            kb.add_entity(id).unwrap();
        }
        kb.add_relation("P1").unwrap();
        kb.add_relation("P2").unwrap();
        kb.add(Part::Train, Triple::new(0, 0, 1)).unwrap();
        for triple in [Triple::new(1, 0, 0), Triple::new(0, 0, 2), Triple::new(0, 1, 1)] {
            kb.add(Part::Test, triple).unwrap();
        }
        assert_eq!((kb.unseen(Part::Test), kb.unseen(Part::Valid), kb.unseen(Part::Train)), (2, 0, 0));
    }

    #[test]
    fn a_triple_of_unknown_ids_is_refused() {
        let mut kb = KnowledgeBase::default();
        kb.add_entity("Q1").unwrap();
        kb.add_relation("P1").unwrap();
        kb.add(Part::Train, Triple::new(0, 0, 0)).unwrap();
        let message = kb.add(Part::Train, Triple::new(0, 0, 1)).unwrap_err().to_string();
        assert!(message.contains("below 1 (entities)") && message.contains("(0, 0, 1)"), "{message}");
        assert!(kb.add(Part::Test, Triple::new(0, 1, 0)).is_err());
        assert_eq!(kb.index(&Part::ALL).len(), 1);
    }
}
