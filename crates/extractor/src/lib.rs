//! Knowledge-base population: facts from text, with their spans, links and evidence.
//!
//! An [`Extractor`] is a pipeline of parts that are also usable alone. A [`Document`] has sentences and
//! tokens. Its [`Mention`]s form [`Chain`]s of the same entity. [`Link`]s connect chains to a knowledge base.
//! [`Fact`]s hold between mentions.

mod annotated;
pub mod coreference;
mod dates;
mod demonyms;
mod document;
pub mod document_relations;
mod error;
mod fact;
mod fact_extractor;
mod linking;
mod mention;
mod mentions;
mod model_check;
mod nominals;
mod parse;
mod parses;
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
pub use fact_extractor::{FactExtractor, Populated, Relations, RelationsOptions};
pub use linking::{
    AliasTable, AliasTableBuilder, KnownEntity, Linker, LinkerOptions, LinkingOptions, NamedEntities,
    NamesFormat, NamesOptions,
};
pub use mention::{Chain, EntityType, Link, Mention, MentionForm};
pub use mentions::{FilteredMentions, MentionsOptions, RuleMentions};
pub use parse::{Parse, SentenceGraph};
pub use parses::Parses;
pub use pronouns::{Gender, Pronoun, Reference, is_pronoun, pronoun};
pub use proposals::proposals;
pub use tags::{allowed_tags, tag_grammar, tag_names, tag_spans};
pub use threshold::best_threshold;

/// Finds the mentions of documents.
///
/// Result `i` is that of `documents[i]`, independently of the others. Mentions are ordered by their start, do
/// not overlap, and are within one sentence.
pub trait MentionFinder: Send + Sync {
    /// The mentions of each document: names, dates, pronouns.
    ///
    /// # Errors
    /// Errors of a model.
    fn mentions(&self, documents: &[Document]) -> Result<Vec<Vec<Mention>>>;
}

/// Groups the mentions of a document by entity.
pub trait Coreference: Send + Sync {
    /// The chains of one document, ordered by their first mention. Each mention is in at most one chain. A
    /// name without other mentions is a chain of one; a pronoun or description without other mentions is in
    /// none.
    ///
    /// # Errors
    /// Errors of a model.
    fn chains(&self, document: &Document, mentions: &[Mention]) -> Result<Vec<Chain>>;
}

/// Extracts facts from documents.
///
/// Result `i` is that of `documents[i]`, independently of the others. Facts are ordered by the start of the
/// subject, then of the object, then by property.
pub trait Extractor: Send + Sync {
    /// The facts of each document.
    ///
    /// # Errors
    /// Errors of a model.
    fn extract(&self, documents: &[Document]) -> Result<Vec<Vec<Fact>>>;
}
