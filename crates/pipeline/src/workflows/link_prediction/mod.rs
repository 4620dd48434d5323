//! Link prediction: embeddings of a knowledge base and networks over its graph, trained from a config, searched for, scored
//! and asked.

mod ask;
mod model;
mod options;
mod search;
mod train;
pub(crate) mod workflow;

pub use ask::{AskOptions, Asker, Chain, LinkAnswer, LinkQuestion};
pub use options::{DataOptions, LinksOptions, NetworkConfig, RangeOptions, SearchOptions};
pub use search::Trial;
pub use train::{Fitted, Scored, evaluate, train, train_network};
