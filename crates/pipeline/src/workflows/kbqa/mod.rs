//! KoRC: questions that need a document and a knowledge base. The builder, and the systems that answer.

mod answers;
mod build;
mod causal;
mod data;
mod model;
mod options;
mod populated;
mod prediction;
mod reason;
mod seq2seq;
pub(crate) mod workflow;

pub use sporran_kilt::Record;
pub use sporran_reasoner::korc::{SplitStatistics, Statistics};

pub use build::{BuildConfig, DocRedOptions, DocumentsOptions, PagesOptions, build};
pub use options::{
    EmbedOptions, EncoderShape, PopulatedFacts, QuestionFiles, ReasonOptions, ReasonerOptions,
    Seq2SeqQuestions, TransferOptions,
};
pub use reason::{Reasoned, Tested, knowledge_base, reason, train};
