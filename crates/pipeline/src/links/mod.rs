//! Link prediction: embeddings of a knowledge base, trained from a config, searched for, and scored.
//!
//! A config of this kind has `[data]` and `[embedding]`; [`ConfigKind`](crate::ConfigKind) tells it.

mod options;
mod search;
mod train;

pub use options::{DataOptions, LinksOptions, RangeOptions, SearchOptions};
pub use search::Trial;
pub use train::{Fitted, Scored, evaluate, train};
