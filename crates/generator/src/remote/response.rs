//! Responses to requests for text, whole or streamed.

use std::ops::ControlFlow;

use serde_json::{Value, json};
use sporran_remote::Assembly;

use super::Api;

/// A generated text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Written {
    pub(super) text: String,
    /// The mean log-probability of its tokens, where the endpoint gives them.
    pub(super) score: Option<f32>,
    /// The number of tokens, as the endpoint counts them; 0 if it does not.
    pub(super) tokens: usize,
    /// The number of tokens that the model read, counted likewise.
    pub(super) read: usize,
    /// Whether the endpoint says that it ended because of its length.
    pub(super) is_cut: bool,
}

/// Reads a response.
///
/// # Errors
/// What was expected and found, for a response without an answer.
pub(super) fn read(api: Api, response: &Value) -> Result<Written, String> {
    let choice = &response["choices"][0];
    if !choice.is_object() {
        return Err(format!(
            "`choices`: expected a list with an answer, found {}",
            kind(&response["choices"])
        ));
    }
    let (name, text) = match api {
        Api::Chat => ("message.content", &choice["message"]["content"]),
        Api::Completions => ("text", &choice["text"]),
    };
    let text = match text {
        Value::String(text) => text.clone(),
        // A message may be a list of parts.
        Value::Array(parts) if parts.iter().all(|part| part["text"].is_string()) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect()
        }
        // A refusal, or a model that spent all tokens on thinking.
        Value::Null if api == Api::Chat && choice["message"].is_object() => {
            choice["message"]["refusal"].as_str().unwrap_or_default().to_owned()
        }
        other => return Err(format!("`choices[0].{name}`: expected a text, found {}", kind(other))),
    };
    let counted = |name: &str| response["usage"][name].as_u64().unwrap_or(0) as usize;
    let (tokens, read) = (counted("completion_tokens"), counted("prompt_tokens"));
    let is_cut = choice["finish_reason"] == "length";
    Ok(Written { text, score: score(&choice["logprobs"]), tokens, read, is_cut })
}

/// What a value is, for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(items) if items.is_empty() => "an empty list",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The log-probabilities of tokens: `content[].logprob` of conversations, `token_logprobs` of continued texts.
fn log_probabilities(choice: &Value) -> Vec<f64> {
    let turns =
        choice["content"].as_array().into_iter().flatten().filter_map(|token| token["logprob"].as_f64());
    let texts = choice["token_logprobs"].as_array().into_iter().flatten().filter_map(Value::as_f64);
    turns.chain(texts).collect()
}

fn score(choice: &Value) -> Option<f32> {
    let found = log_probabilities(choice);
    (!found.is_empty()).then(|| (found.iter().sum::<f64>() / found.len() as f64) as f32)
}

/// The answer in a model's text: what follows its thoughts, up to the first stop.
pub(super) fn answer<'t>(text: &'t str, stops: &[String]) -> &'t str {
    let text = text.rsplit_once("</think>").map_or(text, |(_, answer)| answer.trim_start());
    // Thoughts that did not end have no answer after them.
    let text = if text.trim_start().starts_with("<think>") { "" } else { text };
    before(text, stops)
}

/// The part of a growing text that is shown: without thoughts at its beginning, up to the first stop.
pub(super) fn streamed<'t>(text: &'t str, stops: &[String]) -> &'t str {
    let begin = text.trim_start();
    let may_think = begin.starts_with("<think>") || (!begin.is_empty() && "<think>".starts_with(begin));
    if may_think || begin.is_empty() {
        answer(if begin.contains("</think>") { begin } else { "" }, stops)
    } else {
        before(text, stops)
    }
}

/// A text up to the first stop.
fn before<'t>(text: &'t str, stops: &[String]) -> &'t str {
    let end = stops.iter().filter_map(|stop| text.find(stop.as_str())).min();
    &text[..end.unwrap_or(text.len())]
}

/// A streamed text. `write` gets the text until now after each part, and can end the request.
pub(super) struct Parts<'a> {
    api: Api,
    text: String,
    log_probabilities: Vec<f64>,
    usage: Value,
    /// Why it ended, once it has.
    reason: Option<String>,
    write: &'a dyn Fn(&str) -> Result<ControlFlow<()>, String>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(api: Api, write: &'a dyn Fn(&str) -> Result<ControlFlow<()>, String>) -> Self {
        Self {
            api,
            text: String::new(),
            log_probabilities: Vec::new(),
            usage: Value::Null,
            reason: None,
            write,
        }
    }
}

impl Assembly for Parts<'_> {
    fn part(&mut self, part: &Value) -> Result<ControlFlow<()>, String> {
        if part["usage"].is_object() {
            self.usage = part["usage"].clone();
        }
        // The last part has the usage and no choice.
        let choice = &part["choices"][0];
        let new = match self.api {
            Api::Chat if choice["delta"]["content"].is_null() => &choice["delta"]["refusal"],
            Api::Chat => &choice["delta"]["content"],
            Api::Completions => &choice["text"],
        };
        self.log_probabilities.extend(log_probabilities(&choice["logprobs"]));
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.reason = Some(reason.to_owned());
        }
        match new {
            Value::String(new) => self.text.push_str(new),
            // Parts with the role, with thoughts or with the reason of the end have no text.
            Value::Null => return Ok(ControlFlow::Continue(())),
            other => return Err(format!("expected a text in the stream, found {}", kind(other))),
        }
        (self.write)(&self.text)
    }

    fn is_whole(&self) -> bool {
        self.reason.is_some()
    }

    fn response(&self) -> Value {
        let mut choice = match self.api {
            Api::Chat => json!({ "message": { "role": "assistant", "content": self.text } }),
            Api::Completions => json!({ "text": self.text }),
        };
        choice["finish_reason"] = self.reason.clone().into();
        if !self.log_probabilities.is_empty() {
            choice["logprobs"] = json!({ "token_logprobs": self.log_probabilities });
        }
        json!({ "choices": [choice], "usage": self.usage })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_in_both_forms() {
        let chat = json!({
            "choices": [{
                "message": { "role": "assistant", "content": "Oslo" },
                "logprobs": { "content": [{ "token": "Os", "logprob": -0.5 }, { "token": "lo", "logprob": -1.5 }] },
            }],
            "usage": { "prompt_tokens": 9, "completion_tokens": 2 },
        });
        let expected = Written { text: "Oslo".into(), score: Some(-1.0), tokens: 2, read: 9, is_cut: false };
        assert_eq!(read(Api::Chat, &chat), Ok(expected));
        let text =
            json!({ "choices": [{ "text": " Oslo", "logprobs": { "token_logprobs": [null, -2.0] } }] });
        let expected = Written { text: " Oslo".into(), score: Some(-2.0), tokens: 0, read: 0, is_cut: false };
        assert_eq!(read(Api::Completions, &text), Ok(expected));
        let parts = json!({ "choices": [{ "message": { "content": [{ "type": "text", "text": "a" }, { "text": "b" }] } }] });
        assert_eq!(read(Api::Chat, &parts).unwrap().text, "ab");
        let nothing = json!({ "choices": [{ "message": { "content": null }, "finish_reason": "length" }] });
        let nothing = read(Api::Chat, &nothing).unwrap();
        assert_eq!((nothing.text.as_str(), nothing.is_cut), ("", true));
        // A refusal says why there is no answer.
        let refusal = json!({ "choices": [{ "message": { "content": null, "refusal": "I cannot help." } }] });
        assert_eq!(read(Api::Chat, &refusal).unwrap().text, "I cannot help.");
        let write = |_: &str| Ok(ControlFlow::Continue(()));
        let mut parts = Parts::new(Api::Chat, &write);
        for delta in [json!({ "role": "assistant", "content": null }), json!({ "refusal": "No." })] {
            let _ = parts.part(&json!({ "choices": [{ "delta": delta }] })).unwrap();
        }
        assert_eq!(read(Api::Chat, &parts.response()).unwrap().text, "No.");
    }

    #[test]
    fn other_responses_are_mistakes() {
        for (response, expected) in [
            (json!({}), "`choices`: expected a list with an answer, found nothing"),
            (json!({ "choices": [] }), "`choices`: expected a list with an answer, found an empty list"),
            (
                json!({ "choices": [{ "text": "a" }] }),
                "`choices[0].message.content`: expected a text, found nothing",
            ),
            (
                json!({ "choices": [{ "message": { "content": 3 } }] }),
                "`choices[0].message.content`: expected a text, found a number",
            ),
        ] {
            assert_eq!(read(Api::Chat, &response), Err(expected.to_owned()));
        }
    }

    #[test]
    fn an_answer_follows_the_thoughts_and_ends_before_a_stop() {
        let stops = ["\n".to_owned()];
        assert_eq!(answer("<think>\nHm.\n</think>\n\nOslo\nBergen", &stops), "Oslo");
        assert_eq!(answer("Hm.</think>Oslo", &[]), "Oslo");
        assert_eq!(answer("<think>\nHm", &[]), "");
        assert_eq!(answer("Oslo", &stops), "Oslo");
        for (text, expected) in [
            ("", ""),
            ("<thi", ""),
            ("<think>\nHm", ""),
            ("<think>\nHm.</think>\nOs", "Os"),
            ("Os", "Os"),
            ("Os\nB", "Os"),
        ] {
            assert_eq!(streamed(text, &stops), expected);
        }
    }
}
