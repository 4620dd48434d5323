//! The workflows and their registry.

pub mod answer;
pub mod document_relations;
pub mod entity_linking;
mod file_run;
mod folds;
pub mod kbqa;
pub mod knowledge_selection;
pub mod link_prediction;
pub mod population;
pub mod registry;
pub mod rules;
pub mod slot_filling;
pub mod tagging;
pub(crate) mod workflow;
