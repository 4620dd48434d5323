//! Document-level relation extraction: relations between all entities of a document, DocRED's task (Yao et
//! al., 2019).
//!
//! Mentions and coreference are given. [`DocumentReader`] tokenizes a document with mention markers.
//! [`DocumentRelations`] predicts relations and the sentences that support them.

mod entity_head;
mod features;
mod model;
mod objective;
mod options;
mod reading;
mod train;

pub use entity_head::{ENTITY_HEAD, EntityDocument, EntityHead, EntityHeadConfig, EntityScores};
pub use features::PAIR_FEATURES;
pub use model::{DOCUMENT_RELATIONS, DocumentOptions, DocumentRelations, Scored};
pub use objective::{EntityExample, EntityLearning, EntityObjective, entity_scores, open_with_entities};
pub use options::DocumentsTraining;
pub use reading::{DocumentReader, MARKERS, example, labels};
pub use train::{DocumentTraining, TrainedDocuments, train};
