//! Answers to questions over documents, with numbered evidence. No config and no run's folder is needed.

mod answer;
mod asker;
mod citations;
mod conversation;
mod eval_set;
mod judge;
mod models;
mod options;
mod place;
mod suggestion;

pub use answer::{CitedAnswer, CitedPassage, CitedSentence, heading};
pub use asker::{Asker, FollowUpQueries, cited_passages};
pub use conversation::Conversation;
pub use eval_set::{EvalSet, Synthetic, eval_set};
pub use options::{AskOptions, Endpoint};
pub use suggestion::{SuggestedModel, suggested_model};
