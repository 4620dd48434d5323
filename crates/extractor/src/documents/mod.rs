//! What holds between the entities of a whole document, wherever it names them: DocRED's task (Yao et al., 2019).
//!
//! Mentions and which of them are one entity are given. [`DocumentReader`] writes a document with its mentions marked as tokens,
//! [`DocumentRelations`] tells which properties hold and which sentences show it.

mod features;
mod model;
mod reading;

pub use features::PAIR_FEATURES;
pub use model::{DOCUMENT_RELATIONS, DocumentOptions, DocumentRelations, Scored};
pub use reading::{DocumentReader, MARKERS, example, labels};
