//! Facts: a property that holds between two mentions.

use crate::{Link, Span};

/// The subject or the object of a fact.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// The mention that the fact is read from.
    pub span: Span,
    /// The mention of its chain that names it best: where the fact is read from `she`, the name.
    pub name: Span,
    /// The entity that it means, where the linker is sure enough.
    pub link: Option<Link>,
}

/// A property that a document states between two mentions.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// What it is about.
    pub subject: Argument,
    /// The property's name, such as `DATE_OF_BIRTH`.
    pub property: String,
    /// What it says.
    pub object: Argument,
    /// How sure the extractor is, 0 to 1.
    pub confidence: f32,
    /// The sentence that states it.
    pub sentence: Span,
}
