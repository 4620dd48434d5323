//! Knowledge selection (WOW++; Eric et al., 2021): which of many sentences fit a dialogue. Training of rerankers on judged
//! sentences, cross-validation over dialogues, rankings of every candidate, and predictions in KILT's layout.

mod data;
mod linear;
mod options;
mod rank;
mod respond;
mod train;
pub(crate) mod workflow;

pub use data::{Labels, Selection};
pub use options::{CombineOptions, DataOptions, RerankerTraining, SelectionOptions, TunedOptions};
pub use rank::{rank, write_predictions, write_ranking};
pub use respond::{DialoguesOptions, Responded, ResponseOptions, respond};
pub use train::{Fitted, train};
