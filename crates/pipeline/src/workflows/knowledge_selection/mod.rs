//! Knowledge selection (WOW++; Eric et al., 2021): which of many sentences fit a dialogue. Training of rerankers on judged
//! sentences, cross-validation over dialogues, rankings of every candidate, and predictions in KILT's layout.
//!
//! A config of this kind has `[data]` and `[reranker]` in the place of `[tasks]` and stages. One of responses
//! from the chosen sentences has `[dialogues]`. [`ConfigKind`](crate::workflows::registry::ConfigKind) tells both.

mod data;
mod linear;
mod options;
mod rank;
mod respond;
mod train;

pub use data::{Labels, Selection};
pub use options::{CombineOptions, DataOptions, RerankerKind, SelectionOptions, TunedOptions};
pub use rank::{rank, write_predictions, write_ranking};
pub use respond::{ChoosingOptions, DialoguesOptions, Responded, ResponseOptions, respond};
pub use train::{Fitted, train};
