//! Reasoning over a knowledge base: embeddings of entities and relations, mined rules, and questions.

pub mod embedding;
mod error;

pub use error::{Error, Result};
