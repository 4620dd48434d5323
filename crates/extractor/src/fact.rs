//! Facts: a property that holds between two mentions.

use crate::{Link, Span};

/// The subject or the object of a fact.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// The mention in the fact's sentence.
    pub span: Span,
    /// The most descriptive mention of its chain: for `she`, the name.
    pub name: Span,
    /// The linked entity, if the linker's confidence suffices.
    pub link: Option<Link>,
}

/// A property that a document expresses between two mentions.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// The subject.
    pub subject: Argument,
    /// The property's name, such as `DATE_OF_BIRTH`.
    pub property: String,
    /// The object.
    pub object: Argument,
    /// The confidence of the extractor, 0 to 1.
    pub confidence: f32,
    /// The sentence that expresses the fact.
    pub sentence: Span,
}
