//! What is served under a name: answers over an index or a knowledge base, facts, knowledge bases.

mod answer;
mod answering;
mod completing;
mod document;
mod extracting;
mod list;
mod questioning;

pub(crate) use answer::{AnswerRequest, AnswerResponse, AnswerTrace, ProvenanceItem};
pub(crate) use answering::{Answering, Asking, Found};
pub(crate) use completing::{CompleteRequest, CompleteResponse};
pub(crate) use document::{Document, DocumentResponse, InStore, SearchResponse, fields, named};
pub(crate) use extracting::{FactsResponse, LinksResponse, TextsRequest};
pub(crate) use list::{Mount, MountSummary, Mounts, MountsResponse};
