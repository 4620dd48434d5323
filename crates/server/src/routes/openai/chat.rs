//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::State as Shared,
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sporran_pipeline::workflows::answer::Conversation;

use super::{Usage, settings::Settings, writing::Writing};
use crate::{
    Failure, State,
    clock::now,
    http::{Api, Bodies, Noted, RequestId},
    mounts::{Asking, ProvenanceItem},
    work::Prompted,
};

pub(super) fn add(api: Api<Arc<State>>) -> Api<Arc<State>> {
    api.post::<ChatRequest, ChatResponse, _>(
        "/v1/chat/completions",
        "Answers the last turn of a conversation over an index, with citations, or by the bare model",
        chat,
    )
    .streams("/v1/chat/completions")
}

/// A conversation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct Chat {
    /// The turns. The last one is the user's. Over an index it is the question; the turns before it are
    /// read if it refers to them, such as `and who owns it?`.
    messages: Vec<Message>,
}

type ChatRequest = Bodies<Chat, Settings>;

/// A turn.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct Message {
    /// Whose it is.
    role: Role,
    /// The text.
    #[serde(default)]
    content: Option<Content>,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Role {
    /// The system's, or the developer's.
    #[serde(alias = "developer")]
    System,
    /// The user's.
    User,
    /// The model's.
    Assistant,
}

/// The text of a turn.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text, or a list of parts of the type `text`")]
enum Content {
    /// As a whole.
    Text(String),
    /// In parts.
    Parts(Vec<ContentPart>),
}

/// A part of a turn.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ContentPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
}

impl Message {
    fn text(&self) -> String {
        match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let texts: Vec<&str> = parts.iter().map(|ContentPart::Text { text }| text.as_str()).collect();
                texts.join("\n")
            }
        }
    }
}

/// An answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ChatResponse {
    /// The id.
    id: String,
    /// `chat.completion`.
    object: &'static str,
    /// The time, in seconds since 1970.
    created: u64,
    /// The mount.
    model: String,
    /// The answer.
    choices: Vec<Choice>,
    /// The tokens.
    usage: Usage,
    /// The passages that the citations in the text name by their numbers; null for the bare model.
    citations: Option<Vec<ProvenanceItem>>,
    /// Over an index: the `answer` with checked citations, its `sentences`, `seconds`, and `trace` if the request asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sporran: Option<Value>,
}

/// An answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Choice {
    /// 0.
    index: usize,
    /// The turn.
    message: AnswerMessage,
    /// Null.
    logprobs: Option<Value>,
    /// `stop` or `length`.
    finish_reason: &'static str,
}

/// A turn of the model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct AnswerMessage {
    /// `assistant`.
    role: &'static str,
    /// The text.
    content: String,
    /// Null.
    refusal: Option<Value>,
}

/// The turns of the system, which are instructions of the model.
fn instruction(messages: &[Message]) -> Option<String> {
    let system = messages.iter().filter(|message| message.role == Role::System);
    let texts: Vec<String> = system.map(Message::text).filter(|text| !text.trim().is_empty()).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// A conversation as a prompt of the bare model.
fn turns(messages: &[Message]) -> Result<Prompted, Failure> {
    let mut turns: Vec<(String, String)> = Vec::new();
    let mut asked: Option<String> = None;
    for message in messages {
        match (message.role, asked.take()) {
            (Role::System, before) => asked = before,
            // Two turns of the user in a row are one.
            (Role::User, Some(before)) => asked = Some(format!("{before}\n{}", message.text())),
            (Role::User, None) => asked = Some(message.text()),
            (Role::Assistant, Some(question)) => turns.push((question, message.text())),
            (Role::Assistant, None) => {
                let message = "`messages`: expected a turn of the user before each turn of the assistant";
                return Err(Failure::invalid("messages", message));
            }
        }
    }
    let asked = asked.ok_or_else(no_question)?;
    Ok(Prompted::Turns { system: instruction(messages).unwrap_or_default(), turns, asked })
}

/// The questions before the last turn, with their answers.
fn earlier(messages: &[Message]) -> Conversation {
    let mut turns: Vec<(String, String)> = Vec::new();
    let mut asked: Option<String> = None;
    for message in messages {
        match message.role {
            Role::System => {}
            Role::User => asked = Some(message.text()),
            Role::Assistant => turns.extend(asked.take().map(|question| (question, message.text()))),
        }
    }
    Conversation::of_turns(turns.iter().map(|(question, answer)| (question.as_str(), answer.as_str())))
}

fn no_question() -> Failure {
    Failure::invalid("messages", "`messages`: expected a last turn of the user")
}

async fn chat(
    Shared(state): Shared<Arc<State>>,
    Extension(RequestId(id)): Extension<RequestId>,
    Extension(noted): Extension<Noted>,
    Bodies { first: Chat { messages }, second: settings }: ChatRequest,
) -> Result<Response, Failure> {
    let mounts = state.mounts();
    let answering = mounts.generating(settings.model.as_deref())?;
    let writing = match settings.sporran.retrieve && !answering.is_bare() {
        true => {
            let last =
                messages.last().filter(|message| message.role == Role::User).ok_or_else(no_question)?;
            let (field, question) = ("messages", &*last.text());
            let (earlier, instruction) = (earlier(&messages), instruction(&messages));
            let asking = Asking { field, question, earlier, instruction };
            Writing::over_index(answering, asking, &settings).await?
        }
        false => Writing::bare(answering, turns(&messages)?, &settings)?,
    };
    let (id, created, model) = (format!("chatcmpl-{id}"), now(), answering.name().to_owned());
    if !settings.streams() {
        let written = writing.whole().await?;
        let sporran = written.own();
        let choice = Choice {
            index: 0,
            message: AnswerMessage { role: "assistant", content: written.text, refusal: None },
            logprobs: None,
            finish_reason: written.reason,
        };
        let citations = written.cited.map(|cited| cited.provenance);
        let (object, usage) = ("chat.completion", written.usage);
        return Ok(Json(ChatResponse {
            id,
            object,
            created,
            model,
            choices: vec![choice],
            usage,
            citations,
            sporran,
        })
        .into_response());
    }
    let with_usage = settings.streams_usage();
    let chunk = move |delta: Value, reason: Value| {
        let mut chunk = json!({
            "id": id, "object": "chat.completion.chunk", "created": created, "model": model,
            "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason }],
        });
        // Only the last one has it.
        if with_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    };
    let first = chunk(json!({ "role": "assistant", "content": "" }), Value::Null);
    let next = chunk.clone();
    Ok(writing.stream(
        noted,
        Some(first),
        move |text| next(json!({ "content": text }), Value::Null),
        move |written| {
            let mut last = chunk(json!({}), written.reason.into());
            last["citations"] = written.citations();
            // The text of the parts has the citations that the model wrote; this one has those that were checked.
            if let Some(own) = written.own() {
                last["sporran"] = own;
            }
            let mut values = vec![last];
            if with_usage {
                let mut usage = chunk(json!({}), Value::Null);
                (usage["choices"], usage["usage"]) = (json!([]), json!(written.usage));
                values.push(usage);
            }
            values
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: Value) -> Result<Prompted, Failure> {
        let messages: Vec<Message> = serde_json::from_value(json).unwrap();
        turns(&messages)
    }

    #[test]
    fn turns_are_paired_and_the_last_one_is_the_question() {
        let found = of(json!([
            { "role": "system", "content": "Be short." },
            { "role": "user", "content": "a" },
            { "role": "assistant", "content": "b" },
            { "role": "user", "content": [{ "type": "text", "text": "c" }, { "type": "text", "text": "d" }] },
            { "role": "user", "content": "e" },
        ]))
        .unwrap();
        let Prompted::Turns { system, turns, asked } = found else { panic!("{found:?}") };
        assert_eq!((system.as_str(), asked.as_str()), ("Be short.", "c\nd\ne"));
        assert_eq!(turns, [("a".to_owned(), "b".to_owned())]);
        assert_eq!(of(json!([])).unwrap_err().field.as_deref(), Some("messages"));
        assert!(
            of(json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }])).is_err()
        );
        assert!(of(json!([{ "role": "assistant", "content": "b" }])).is_err());
    }
}
