//! Knowledge selection (WOW++; Eric et al., 2021): ranks sentences for a dialogue. Trains rerankers on
//! annotated sentences, with cross-validation over dialogues. Writes rankings of all candidates, and
//! predictions in KILT's layout.

mod cutoff;
mod data;
mod options;
mod rank;
mod respond;
mod train;
mod train_generator;
pub(crate) mod workflow;

pub use cutoff::{Negatives, Threshold};
pub use data::Labels;
pub use options::{DataOptions, SelectionOptions};
pub(crate) use rank::WITHOUT_SENTENCE;
pub use rank::{rank, write_predictions, write_ranking};
pub use respond::{DialoguesOptions, ResponseOptions, ResponseReport, SentenceChoice, respond};
pub use train::{TestReport, TrainedReranker, train};
pub use train_generator::{ResponseExamples, train_generator};
