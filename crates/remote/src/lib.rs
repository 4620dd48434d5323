//! Models at an HTTP endpoint in the form of OpenAI's API, as vLLM, llama.cpp, Ollama, TGI and TEI offer it.
//!
//! A [`Client`] sends JSON and reads JSON. It repeats requests that failed, keeps to limits, and stores responses on disk
//! by the hash of their request. [`usage`] counts the tokens and the cost of this process.
//!
//! The key of an endpoint comes from an environment variable. It is in no log, error, cache or result, not even where a
//! server sends it back.

mod account;
mod base_url;
mod cache;
mod client;
mod error;
mod events;
mod failure;
mod options;
mod pace;
mod secret;

pub use account::{Usage, usage, usage_since};
pub use client::{Assembly, Call, Client, Endpoint, Reading, Route, Streamed};
pub use error::{Error, Result};
pub use options::{RequestOptions, check_endpoint};
