//! `POST /v1/completions`.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::State as Shared,
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Usage, settings::Settings, writing::Writing};
use crate::{
    Failure, State,
    clock::now,
    http::{Api, Bodies, Noted, RequestId},
    mounts::{Answering, Asking, ProvenanceItem},
    routes::tei::Texts,
    work::Prompted,
};

pub(super) fn add(api: Api<Arc<State>>) -> Api<Arc<State>> {
    api.post::<CompletionsRequest, CompletionsResponse, _>(
        "/v1/completions",
        "Answers questions over an index, with citations, or continues texts by the bare model",
        completions,
    )
    .streams("/v1/completions")
}

/// Questions or texts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct Completions {
    /// A question, or a text that the bare model continues; or several.
    prompt: Texts,
}

type CompletionsRequest = Bodies<Completions, Settings>;

/// Answers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct CompletionsResponse {
    /// The id.
    id: String,
    /// `text_completion`.
    object: &'static str,
    /// The time, in seconds since 1970.
    created: u64,
    /// The mount.
    model: String,
    /// The answers, in the order of the prompts.
    choices: Vec<Choice>,
    /// The tokens.
    usage: Usage,
}

/// An answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Choice {
    /// The place of its prompt.
    index: usize,
    /// The text.
    text: String,
    /// Null.
    logprobs: Option<Value>,
    /// `stop` or `length`.
    finish_reason: &'static str,
    /// The passages that the citations in the text name by their numbers; null for the bare model.
    citations: Option<Vec<ProvenanceItem>>,
}

async fn begun(answering: &Arc<Answering>, prompt: String, settings: &Settings) -> Result<Writing, Failure> {
    match settings.sporran.retrieve && !answering.is_bare() {
        true => Writing::over_index(answering, Asking::alone("prompt", &prompt), settings).await,
        false => Writing::bare(answering, Prompted::Text(prompt), settings),
    }
}

async fn completions(
    Shared(state): Shared<Arc<State>>,
    Extension(RequestId(id)): Extension<RequestId>,
    Extension(noted): Extension<Noted>,
    Bodies { first: Completions { prompt }, second: settings }: CompletionsRequest,
) -> Result<Response, Failure> {
    let mut prompts = prompt.all("prompt")?;
    // Each prompt takes its turn in the queue, where too many would hold up the other requests.
    state.limits().checked("prompt", Some(prompts.len()))?;
    if settings.sporran.trace {
        let message =
            "`sporran.trace`: expected none; `/v1/chat/completions` and `/v1/answer` have the steps";
        return Err(Failure::invalid("sporran.trace", message));
    }
    let mounts = state.mounts();
    let answering = mounts.generating(settings.model.as_deref())?;
    let (id, created, model) = (format!("cmpl-{id}"), now(), answering.name().to_owned());
    if !settings.streams() {
        let mut writings = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            writings.push(begun(answering, prompt, &settings).await?);
        }
        let (mut choices, mut read, mut wrote) = (Vec::with_capacity(writings.len()), 0, 0);
        for (index, writing) in writings.into_iter().enumerate() {
            let written = writing.whole().await?;
            read += written.usage.prompt_tokens;
            wrote += written.usage.completion_tokens.unwrap_or(0);
            let citations = written.cited.map(|cited| cited.provenance);
            choices.push(Choice {
                index,
                text: written.text,
                logprobs: None,
                finish_reason: written.reason,
                citations,
            });
        }
        let (object, usage) = ("text_completion", Usage::of(read, wrote));
        return Ok(Json(CompletionsResponse { id, object, created, model, choices, usage }).into_response());
    }
    let prompt = match (prompts.pop(), prompts.is_empty()) {
        (Some(prompt), true) => prompt,
        _ => return Err(Failure::invalid("prompt", "`prompt`: expected one prompt for a stream")),
    };
    let with_usage = settings.streams_usage();
    let chunk = move |text: &str, reason: Value| {
        let mut chunk = json!({
            "id": id, "object": "text_completion", "created": created, "model": model,
            "choices": [{ "index": 0, "text": text, "logprobs": null, "finish_reason": reason }],
        });
        // Only the last one has it.
        if with_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    };
    let next = chunk.clone();
    Ok(begun(answering, prompt, &settings).await?.stream(
        noted,
        None,
        move |text| next(text, Value::Null),
        move |written| {
            let mut last = chunk("", written.reason.into());
            last["choices"][0]["citations"] = written.citations();
            let mut values = vec![last];
            if with_usage {
                let mut usage = chunk("", Value::Null);
                (usage["choices"], usage["usage"]) = (json!([]), json!(written.usage));
                values.push(usage);
            }
            values
        },
    ))
}
