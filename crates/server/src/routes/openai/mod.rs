//! The API of OpenAI.

mod chat;
mod completions;
mod embeddings;
mod models;
mod settings;
mod writing;

use std::sync::Arc;

use serde::Serialize;

use crate::{State, http::Api};

pub(super) fn add(api: Api<Arc<State>>) -> Api<Arc<State>> {
    let api = models::add(api.group("OpenAI"));
    let api = embeddings::add(api);
    let api = completions::add(api);
    chat::add(api)
}

/// The tokens of a request and its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
struct Usage {
    /// The tokens that the model read; 0 if it does not tell.
    prompt_tokens: usize,
    /// The tokens that it wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_tokens: Option<usize>,
    /// Both.
    total_tokens: usize,
}

impl Usage {
    fn of_prompt(tokens: usize) -> Self {
        Self { prompt_tokens: tokens, completion_tokens: None, total_tokens: tokens }
    }

    fn of(prompt: usize, completion: usize) -> Self {
        Self { prompt_tokens: prompt, completion_tokens: Some(completion), total_tokens: prompt + completion }
    }
}
