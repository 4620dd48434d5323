//! Reasoning over a knowledge base: embeddings of entities and relations, mined rules, and questions.

pub mod embedding;
mod error;
pub mod korc;
mod learning;
mod link_model;
pub mod network;
mod product;
pub mod question;
pub mod rules;

pub use error::{Error, Result};
pub use link_model::LinkModel;
