//! Knowledge-base population: text in, facts out, with their spans, their links and their evidence.
//!
//! An [`Extractor`] is a chain of parts, each usable alone: a [`Document`]'s sentences and tokens, its [`Mention`]s, the
//! [`Chain`]s of mentions that mean the same thing, the [`Link`]s of chains into a knowledge base, and the [`Fact`]s
//! that hold between mentions.

mod annotated;
pub mod coreference;
mod dates;
mod demonyms;
mod document;
pub mod document_relations;
mod error;
mod fact;
mod linking;
mod mention;
mod nominals;
mod populator;
mod pronouns;
mod proposals;
pub mod relations;
mod sentences;
pub mod tagger;
mod tags;
mod threshold;
mod tokens;
pub mod triplets;

pub use annotated::Annotated;
pub use document::{Document, Sentence, Span};
pub use error::{Error, Result};
pub use fact::{Argument, Fact};
pub use linking::{AliasTable, AliasTableBuilder, KnownEntity, Linker, LinkerOptions};
pub use mention::{Chain, EntityType, Link, Mention, MentionForm};
pub use populator::{Formed, Populated, Populator, Proposals, Relations};
pub use pronouns::{Gender, Pronoun, Reference, is_pronoun, pronoun};
pub use proposals::proposals;
pub use tags::{allowed_tags, tag_grammar, tag_names, tag_spans};
pub use threshold::best_threshold;

/// Finds the mentions of documents.
///
/// Result `i` is that of `documents[i]`, whatever stands beside it. Mentions are ordered by their start, do not overlap,
/// and each is within one sentence.
pub trait MentionFinder: Send + Sync {
    /// The mentions of each document: names, dates, pronouns.
    ///
    /// # Errors
    /// Where a model fails.
    fn mentions(&self, documents: &[Document]) -> Result<Vec<Vec<Mention>>>;
}

/// Puts the mentions of documents that mean the same entity together.
pub trait Coreference: Send + Sync {
    /// The chains of one document, each mention in at most one, ordered by their first mention. A mention that nothing else
    /// means the same as is a chain of itself where it is a name; a pronoun or a description alone is in none.
    ///
    /// # Errors
    /// Where a model fails.
    fn chains(&self, document: &Document, mentions: &[Mention]) -> Result<Vec<Chain>>;
}

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
