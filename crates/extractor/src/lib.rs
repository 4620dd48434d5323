//! Knowledge-base population: text in, facts out, with their spans, their links and their evidence.
//!
//! An [`Extractor`] is a chain of parts, each usable alone: a [`Document`]'s sentences and tokens, its [`Mention`]s, the
//! [`Chain`]s of mentions that mean the same thing, the [`Link`]s of chains into a knowledge base, and the [`Fact`]s
//! that hold between mentions.

mod document;
mod error;
mod fact;
mod mention;
mod sentences;
mod tokens;

pub use document::{Document, Sentence, Span};
pub use error::{Error, Result};
pub use fact::{Argument, Fact};
pub use mention::{Chain, EntityType, Link, Mention, MentionForm};

/// Finds the facts that documents state.
///
/// Result `i` is that of `documents[i]`, whatever stands beside it. A document's facts are ordered by the start of the
/// subject, then of the object, then by property.
pub trait Extractor: Send + Sync {
    /// The facts of each document.
    ///
    /// # Errors
    /// Where a model fails.
    fn extract(&self, documents: &[Document]) -> Result<Vec<Vec<Fact>>>;
}
