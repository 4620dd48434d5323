//! KoRC (Yao et al., 2023): questions that need a document and a knowledge base. This module builds such
//! benchmarks.
//!
//! [`pages`] and [`docred`] read documents with linked mentions. [`build()`] creates questions from them.
//! [`Statistics`] counts.

mod anonymise;
mod build;
mod chain;
mod check;
mod derive;
mod document;
mod links;
mod names;
mod split;
mod statistics;
mod template;

pub use anonymise::{anonymise, mark, names_in};
pub use build::{BuildOptions, Built, FactAnswers, Origin, SPLITS, Sources, build};
pub use chain::{Chain, Graphs, Limits, Numbers, Route, WrittenChain, chains};
pub use document::{Document, Mention, docred, pages};
pub use links::{Hyperlinks, Links, MentionLinker, Vertex};
pub use names::{Entities, EntityTables, label_relations};
pub use split::Unit;
pub use statistics::Statistics;
pub use template::Templates;
