//! Knowledge bases: triples of subject, relation and object over entities with labels and aliases.
//!
//! A [`KnowledgeBase`] numbers its entities and relations densely in the order in which its files name them, so that an
//! [`EntityId`] is a row of an embedding matrix. A [`TripleIndex`] answers which objects a subject has by a relation,
//! and which subjects an object has.

mod base;
mod index;
mod labels;
mod names;
mod ntriples;
mod tables;

use serde::{Deserialize, Serialize};

pub use base::{KnowledgeBase, Named};
pub use index::TripleIndex;
pub use labels::{NamesRow, read_names};
pub use names::Names;

/// An entity of a [`KnowledgeBase`]: dense, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EntityId(pub u32);

impl EntityId {
    /// The id as an index into dense arrays.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A relation of a [`KnowledgeBase`]: dense, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RelationId(pub u32);

impl RelationId {
    /// The id as an index into dense arrays.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A fact: `subject` stands in `relation` to `object`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Triple {
    /// Of what something is said.
    pub subject: EntityId,
    /// What is said of it.
    pub relation: RelationId,
    /// With what it stands in the relation.
    pub object: EntityId,
}

impl Triple {
    /// A triple of bare numbers.
    #[must_use]
    pub fn new(subject: u32, relation: u32, object: u32) -> Self {
        Self { subject: EntityId(subject), relation: RelationId(relation), object: EntityId(object) }
    }
}

/// A part of a knowledge base's triples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// What is known, and learned from.
    Train,
    /// What choices are made on.
    Valid,
    /// What is reported on.
    Test,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Train, Self::Valid, Self::Test];

    /// Its name in file names.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Valid => "valid",
            Self::Test => "test",
        }
    }
}
