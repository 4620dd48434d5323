//! Knowledge bases: triples of subject, relation and object over entities with labels and aliases.
//!
//! A [`KnowledgeBase`] numbers its entities and relations densely in the order of its files, so that an
//! [`EntityId`] is a row of an embedding matrix. A [`TripleIndex`] finds the objects of a subject and a
//! relation, and the subjects of a relation and an object.

mod base;
mod hold_out;
mod index;
mod labels;
mod names;
mod ntriples;
mod tables;

use serde::{Deserialize, Serialize};

pub use base::{KnowledgeBase, LabelledIds};
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

/// A fact: `relation` holds from `subject` to `object`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Triple {
    /// The subject.
    pub subject: EntityId,
    /// The relation.
    pub relation: RelationId,
    /// The object.
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
    /// For training.
    Train,
    /// For validation.
    Valid,
    /// For the final evaluation.
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
