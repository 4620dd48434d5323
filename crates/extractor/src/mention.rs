//! Mentions of entities, their chains, and their links.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Span;

/// The type of a mention's entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
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

/// The form of a mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MentionForm {
    /// A name or a date.
    Name,
    /// A pronoun, such as `she`.
    Pronoun,
    /// A description, such as `the company`.
    Nominal,
}

/// A span of a sentence that refers to an entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Mention {
    /// Its span.
    pub span: Span,
    /// Its tokens, as indices into the document's; not empty, within one sentence.
    pub tokens: Range<usize>,
    /// The sentence's index.
    pub sentence: usize,
    /// The type of its entity.
    pub kind: EntityType,
    /// Its form.
    pub form: MentionForm,
    /// The confidence of its finder, 0 to 1.
    pub confidence: f32,
}

/// Mentions of one document that refer to the same entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Mention indices with the confidence that they belong to this chain, 0 to 1; ascending.
    pub mentions: Vec<(usize, f32)>,
    /// The index of the most descriptive mention.
    pub representative: usize,
    /// Mentions outside of this chain that may belong to it, with their confidences, 0 to 1; ascending. A
    /// mention can be here for several chains.
    pub others: Vec<(usize, f32)>,
}

/// The entity of a chain or a mention in the knowledge base.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The entity's id, such as `Q42`.
    pub entity: String,
    /// The confidence of the linker, 0 to 1.
    pub confidence: f32,
}
