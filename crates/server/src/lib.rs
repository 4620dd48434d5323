//! One process that serves answers, searches, embeddings and facts over HTTP.
//!
//! [`Server::open`] opens configs, documents and models; [`Server::run`] answers requests until [`Stop`] is called. The APIs
//! are those of text-embeddings-inference, OpenAI, Jina, Cohere, Pyserini and Search-R1, and a few of our own; `GET
//! /openapi.json` lists them all. Each model has a thread of its own, which gathers what waits into batches, so that no thread
//! of the HTTP side computes.
//!
//! No part of a request names a file: mounts, documents and models are looked up by name in memory.

#![allow(
    clippy::result_large_err,
    reason = "an error ends a request or the start, so its size does not count"
)]

mod browse;
mod clock;
mod error;
mod failure;
mod heap;
mod http;
mod mcp;
mod metrics;
mod models;
mod mounts;
mod options;
mod page;
mod routes;
mod server;
mod state;
mod stop;
mod work;

pub use browse::{BrowseOptions, KnowledgeOptions, Named};
pub use error::{Error, Result};
pub(crate) use failure::{Cause, Failure};
pub use mcp::serve_stdio;
pub use options::{Key, Limits, ServedModels, ServerOptions};
pub use server::Server;
pub use state::State;
pub use stop::Stop;
