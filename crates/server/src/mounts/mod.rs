//! What is served under a name: answers over an index, facts, knowledge bases.

mod answer;
mod answering;
mod completing;
mod document;
mod extracting;
mod list;

pub use answer::{
    AnswerRequest, AnswerResponse, AnswerSentence, AnswerTrace, ProvenanceItem, TraceItem, TraceStep,
};
pub use answering::Answering;
pub(crate) use answering::Found;
pub use completing::{CompleteRequest, CompleteResponse, Completing};
pub use document::{Document, DocumentResponse, QueryText, SearchCandidate, SearchResponse};
pub(crate) use document::{InStore, named};
pub use extracting::{Extracting, FactsResponse, LinksResponse, TextFacts, TextLinks, TextsRequest};
pub use list::{Mount, MountSummary, Mounted, Mounts, MountsResponse};
