//! One attempt of a request, and the list of an endpoint's models.

use std::{
    io::{BufReader, Read as _},
    ops::ControlFlow,
};

use serde_json::Value;
use sporran_kilt::jsonl::plain_json;
use ureq::{Body, http::Response};

use super::{Assembly, Call, Client};
use crate::{
    Error, Result,
    events::Events,
    failure::{Failure, message},
};

/// The largest response, in bytes.
const LARGEST: u64 = 256 << 20;
/// Models that an error lists.
const LISTED: usize = 10;
/// The data of the event after the last part of a stream.
const DONE: &str = "[DONE]";

/// A response to one attempt.
pub(super) enum Received<A> {
    Whole(Value),
    Ended(A),
}

impl Client {
    /// One attempt.
    pub(super) fn send<A: Assembly>(
        &self,
        url: &str,
        call: &Call,
        begin: Option<&dyn Fn() -> A>,
    ) -> Result<Received<A>, Failure> {
        let secret = self.secret.as_ref();
        let mut body = call.body.clone();
        if begin.is_some() {
            body["stream"] = true.into();
            body["stream_options"] = serde_json::json!({ "include_usage": true });
        }
        let agent = if begin.is_some() { &self.streaming } else { &self.agent };
        let mut request = agent.post(url).header("Content-Type", "application/json");
        if let Some(secret) = secret {
            request = request.header("Authorization", secret.header());
        }
        let response = request.send(body.to_string().as_bytes());
        let response = response.map_err(|error| Failure::of_client(&error, secret))?;
        let (status, headers) = (response.status(), response.headers().clone());
        if !status.is_success() {
            // The message is optional, the status is not.
            let body = self.body(response).unwrap_or_default();
            return Err(Failure::of_status(status, &headers, &body, secret));
        }
        let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        match begin {
            Some(begin) if kind.starts_with("text/event-stream") => self.parts(response, begin()),
            _ => {
                let body = self.body(response)?;
                let response: Value = serde_json::from_slice(&body).map_err(|error| {
                    let text = message(&body, secret);
                    Failure::passing(format!(
                        "expected JSON, found `{text}` ({})",
                        plain_json(&error.to_string())
                    ))
                })?;
                // Some endpoints report an error with the status of success.
                if !response["error"].is_null() && response["choices"].is_null() {
                    return Err(Failure::passing(message(&body, secret)));
                }
                Ok(Received::Whole(response))
            }
        }
    }

    /// The bytes of a response.
    fn body(&self, response: Response<Body>) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let mut reader = response.into_body().into_with_config().limit(LARGEST).reader();
        match reader.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(Failure::of_client(&ureq::Error::from(error), self.secret.as_ref())),
        }
    }

    /// The parts of a stream.
    fn parts<A: Assembly>(&self, response: Response<Body>, mut assembly: A) -> Result<Received<A>, Failure> {
        let secret = self.secret.as_ref();
        let reader = response.into_body().into_with_config().limit(LARGEST).reader();
        let mut events = Events::new(BufReader::new(reader));
        loop {
            let data = events.next_data();
            let data = match data.map_err(|error| Failure::of_client(&ureq::Error::from(error), secret))? {
                Some(data) => data,
                None if assembly.is_whole() => break,
                None => return Err(Failure::passing("the stream ended before the response")),
            };
            if data == DONE {
                break;
            }
            let mut part: Value = serde_json::from_str(&data).map_err(|error| {
                let text = message(data.as_bytes(), secret);
                Failure::passing(format!(
                    "expected JSON in the stream, found `{text}` ({})",
                    plain_json(&error.to_string())
                ))
            })?;
            if let Some(secret) = secret {
                secret.hide_in(&mut part);
            }
            if !part["error"].is_null() {
                return Err(Failure::passing(message(part.to_string().as_bytes(), secret)));
            }
            match assembly.part(&part) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => {
                    self.charge(&assembly.response());
                    return Ok(Received::Ended(assembly));
                }
                Err(problem) => return Err(Failure::passing(problem)),
            }
        }
        Ok(Received::Whole(assembly.response()))
    }

    /// The names of the models that the endpoint lists. Asks once, without a repetition or the cache.
    ///
    /// # Errors
    /// [`Error::Failed`] or [`Error::Refused`] if the endpoint has no list of models.
    pub fn models(&self) -> Result<Vec<String>> {
        let url = self.base.join("models");
        let mut request = self.agent.get(&url);
        if let Some(secret) = &self.secret {
            request = request.header("Authorization", secret.header());
        }
        let listed = || -> Result<Value, Failure> {
            let secret = self.secret.as_ref();
            let response = request.call().map_err(|error| Failure::of_client(&error, secret))?;
            let (status, headers) = (response.status(), response.headers().clone());
            let body = self.body(response)?;
            if !status.is_success() {
                return Err(Failure::of_status(status, &headers, &body, secret));
            }
            let mut value: Value = serde_json::from_slice(&body).map_err(|error| {
                Failure::passing(format!(
                    "expected JSON, found `{}` ({})",
                    message(&body, secret),
                    plain_json(&error.to_string())
                ))
            })?;
            if let Some(secret) = secret {
                secret.hide_in(&mut value);
            }
            Ok(value)
        };
        let value = listed().map_err(|failure| match failure.refused {
            Some(status) => Error::Refused { url: url.clone(), status, problem: failure.problem },
            None => Error::Failed { url: url.clone(), attempts: 1, problem: failure.problem },
        })?;
        let models = value["data"].as_array().into_iter().flatten();
        Ok(models.filter_map(|model| Some(model["id"].as_str()?.to_owned())).collect())
    }

    /// The models of the endpoint, for the error that it does not know one. Empty if it lists none.
    pub(super) fn listed(&self) -> String {
        let names = self.models().unwrap_or_default();
        let shown: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
        match shown.is_empty() {
            true => String::new(),
            false => {
                let more = if names.len() > LISTED { " and others" } else { "" };
                format!("; the endpoint has {}{more}", shown.join(", "))
            }
        }
    }
}
