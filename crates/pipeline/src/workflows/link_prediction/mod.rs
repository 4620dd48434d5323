//! Link prediction with embeddings of a knowledge base and networks over its graph: training, search of
//! hyperparameters, evaluation and queries.

mod ask;
mod model;
mod options;
mod search;
mod train;
pub(crate) mod workflow;

pub use ask::{AskOptions, Chain, LinkAnswer, LinkPredictor, LinkQuestion};
pub use options::{DataOptions, LinksOptions, NetworkConfig, RangeOptions, SearchOptions};
pub use search::Trial;
pub use train::{Scored, TrainedLinks, evaluate, train, train_network};
