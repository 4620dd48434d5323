//! KoRC: questions over a document and a knowledge base. Builds the benchmark, and trains and runs the models.

mod answers;
mod build;
mod causal;
mod data;
mod generating;
mod options;
mod populated;
mod prediction;
mod reason;
mod seq2seq;
pub(crate) mod workflow;

pub use sporran_kilt::Record;
pub use sporran_reasoner::korc::{SplitStatistics, Statistics};

pub use build::{BuildConfig, DocRedOptions, DocumentsOptions, PagesOptions, build};
pub use generating::{CausalQuestions, GeneratingReasoner, ReasonerOptions, Seq2SeqQuestions};
pub use options::{PopulatedFacts, QuestionFiles, ReasonOptions};
pub use reason::{ReasonReport, Tested, knowledge_base, reason, train};
