//! What holds between the entities of a whole document, wherever it names them: DocRED's task (Yao et al., 2019).
//!
//! Mentions and which of them are one entity are given. [`DocumentReader`] writes a document with its mentions marked as tokens,
//! [`DocumentRelations`] tells which properties hold and which sentences show it.

mod entity_head;
mod features;
mod model;
mod objective;
mod reading;

pub use entity_head::{ENTITY_HEAD, EntityDocument, EntityHead, EntityHeadConfig, EntityScores};
pub use features::PAIR_FEATURES;
pub use model::{DOCUMENT_RELATIONS, DocumentOptions, DocumentRelations, Scored};
pub use objective::{EntityExample, EntityLearning, EntityObjective, entity_scores, open_with_entities};
pub use reading::{DocumentReader, MARKERS, example, labels};
