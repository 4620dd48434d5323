//! Knowledge selection (WOW++; Eric et al., 2021): which of many sentences fit a dialogue. Training of rerankers on judged
//! sentences, cross-validation over dialogues, rankings of every candidate, and predictions in KILT's layout.
//!
//! A config of this kind has `[data]` and `[reranker]` in the place of `[tasks]` and stages; [`is_selection`] tells it.

mod data;
mod linear;
mod options;
mod rank;
mod train;

pub use data::{Labels, Selection};
pub use options::{CombineOptions, DataOptions, RerankerKind, SelectionOptions, TunedOptions, is_selection};
pub use rank::{rank, write_predictions, write_ranking};
pub use train::{Fitted, train};
