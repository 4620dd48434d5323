//! Mentions of entities, chains of those that mean the same, and their links.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::Span;

/// What kind of thing a mention means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntityType {
    /// A person.
    Person,
    /// An organisation.
    Organisation,
    /// A place, a country, a nationality.
    Location,
    /// A date or a year.
    Date,
    /// Any other name.
    Other,
}

/// How a mention is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MentionForm {
    /// A name or a date.
    Name,
    /// A pronoun, such as `she`.
    Pronoun,
    /// A description, such as `the company`.
    Nominal,
}

/// A piece of a sentence that means an entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Mention {
    /// Where it stands.
    pub span: Span,
    /// Its tokens, as indices into the document's; not empty, and within one sentence.
    pub tokens: Range<usize>,
    /// The sentence's index.
    pub sentence: usize,
    /// What it means.
    pub kind: EntityType,
    /// How it is put.
    pub form: MentionForm,
    /// How sure its finder is, 0 to 1.
    pub confidence: f32,
}

/// Mentions of one document that mean the same entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Indices of mentions with how sure it is that they belong here, 0 to 1; ascending.
    pub mentions: Vec<(usize, f32)>,
    /// The mention that names it best: an index of a mention.
    pub representative: usize,
}

/// What a chain or a mention stands for in the knowledge base.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The entity's id, such as `Q42`.
    pub entity: String,
    /// How sure the linker is, 0 to 1.
    pub confidence: f32,
}
