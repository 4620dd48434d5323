//! KoRC: questions over a document and a knowledge base. Builds the benchmark, and trains and runs the models.

mod answers;
mod build;
mod causal;
mod data;
mod linking;
mod options;
mod phrasing;
mod populated;
mod prediction;
mod rag;
mod reason;
mod registry;
mod remote;
mod retrieval;
mod seq2seq;
mod system;
mod texts;
pub(crate) mod workflow;

pub use sporran_kilt::{Record, korc::Version};
pub use sporran_reasoner::korc::Statistics;

pub use build::{BuildConfig, DocRedOptions, DocumentsOptions, PagesOptions, build};
pub use causal::CausalQuestions;
pub use options::{EntityNames, PopulatedFacts, QuestionFiles, ReasonOptions};
pub use phrasing::PhrasingOptions;
pub use populated::Stated;
pub use prediction::{Bridge, QuestionAnswer, SupportingTriple, WeighedRelation};
pub use rag::{RagQuestions, RagSequenceQuestions, RagTokenQuestions};
pub use reason::{ReasonReport, Tested, knowledge_base, reason, train};
pub use registry::{GeneratingReasoner, ReasonerOptions};
pub use remote::RemoteQuestions;
pub use seq2seq::{InputOrder, Seq2SeqQuestions};
pub use system::{AskedQuestion, QuestionAnswers, QuestionSystem};
