//! An answer while it is written.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_core::Stream;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    time::timeout,
};

use super::{Usage, settings::Settings};
use crate::{
    Cause, Failure,
    failure::Form,
    http::Noted,
    mounts::{AnswerResponse, AnswerTrace, Answering, Asking, Found},
    work::{Generated, Piece, PieceReceiver, Prompted},
};

/// The events of a stream that may wait for a slow client.
const WAITING: usize = 64;

/// An answer that was begun.
pub(super) struct Writing {
    answering: Arc<Answering>,
    pieces: PieceReceiver,
    /// The passages of an answer over the index.
    found: Option<Found>,
    top: Option<usize>,
    /// The steps before the answer, if they are wanted.
    trace: Option<AnswerTrace>,
    stops: Vec<String>,
    begin: Instant,
}

/// A finished answer.
pub(super) struct Written {
    /// The text.
    pub(super) text: String,
    /// The answer with its citations, if it is over the index.
    pub(super) cited: Option<AnswerResponse>,
    /// `stop` or `length`.
    pub(super) reason: &'static str,
    /// The tokens.
    pub(super) usage: Usage,
}

impl Written {
    /// The passages of the citations.
    pub(super) fn citations(&self) -> Value {
        self.cited.as_ref().map_or(Value::Null, |cited| json!(cited.provenance))
    }

    /// What only this server has: the text with checked citations, its sentences, the time, and the steps if they are wanted.
    pub(super) fn own(&self) -> Option<Value> {
        let AnswerResponse { answer, sentences, seconds, trace, .. } = self.cited.as_ref()?;
        let mut own = json!({ "answer": answer, "sentences": sentences, "seconds": seconds });
        if let Some(trace) = trace {
            own["trace"] = json!(trace);
        }
        Some(own)
    }
}

impl Writing {
    /// Begins an answer over the index to a question, which may refer to earlier ones.
    ///
    /// # Errors
    /// Wrong settings, a full queue, and errors of the index.
    pub(super) async fn over_index(
        answering: &Arc<Answering>,
        asking: Asking<'_>,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        let options = settings.options(answering.limits())?;
        let (stops, top) = (settings.stops()?, answering.checked("sporran.top", settings.sporran.top)?);
        let begin = Instant::now();
        let mut found = answering.found(asking, settings.sporran.trace).await?;
        let trace = if settings.sporran.trace { Some(answering.steps(&mut found).await?) } else { None };
        let pieces = answering.begin(&mut found, options)?;
        Ok(Self { answering: Arc::clone(answering), pieces, found: Some(found), top, trace, stops, begin })
    }

    /// Begins what the bare model says.
    ///
    /// # Errors
    /// Wrong settings and a full queue.
    pub(super) fn bare(
        answering: &Arc<Answering>,
        prompted: Prompted,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        let own = &settings.sporran;
        for (field, is_set) in [("sporran.top", own.top.is_some()), ("sporran.trace", own.trace)] {
            if is_set {
                let message = format!("`{field}`: expected none without retrieval, which has no passages");
                return Err(Failure::invalid(field, message));
            }
        }
        let (options, stops) = (settings.options(answering.limits())?, settings.stops()?);
        let pieces = answering.begin_bare(prompted, options)?;
        let (answering, begin) = (Arc::clone(answering), Instant::now());
        Ok(Self { answering, pieces, found: None, top: None, trace: None, stops, begin })
    }

    /// The answer as a whole. `parts` receives the text in parts.
    ///
    /// # Errors
    /// Errors of the models.
    async fn written(mut self, parts: Option<&Parts<'_>>) -> Result<Written, Failure> {
        let (mut stops, asked) = (Stops::new(std::mem::take(&mut self.stops)), Instant::now());
        let generated = loop {
            match self.pieces.next().await {
                // What comes after a stop is not read.
                Some(Piece::Text(_)) if stops.is_over => {}
                Some(Piece::Text(text)) => {
                    let part = stops.push(&text);
                    if let Some(parts) = parts {
                        parts.send(&part).await;
                    }
                    if stops.is_over {
                        self.pieces.stop();
                    }
                }
                Some(Piece::Done(result)) => break (*result)?,
                None => return Err(Failure::internal("a generator has ended")),
            }
        };
        let rest = stops.rest();
        if let Some(parts) = parts {
            parts.send(&rest).await;
        }
        let Generated { generation, read, is_cut } = generated;
        let usage = Usage::of(read, generation.tokens);
        let (text, reason) = match stops.is_over {
            true => (stops.text, "stop"),
            false => (generation.text, if is_cut { "length" } else { "stop" }),
        };
        let Some(found) = self.found else { return Ok(Written { text, cited: None, reason, usage }) };
        if let Some(trace) = &mut self.trace {
            trace.wrote(&text, usage.completion_tokens.unwrap_or(0), asked.elapsed().as_secs_f64());
        }
        let mut cited = self.answering.cited(found, text, self.top).await?;
        (cited.trace, cited.seconds) = (self.trace, self.begin.elapsed().as_secs_f64());
        Ok(Written { text: cited.answer.clone(), cited: Some(cited), reason, usage })
    }

    /// The answer as a whole.
    ///
    /// # Errors
    /// Errors of the models.
    pub(super) async fn whole(self) -> Result<Written, Failure> {
        self.written(None).await
    }

    /// The answer as server-sent events: `first`, then one for each part of the text, and `last` for the end. It ends when the
    /// client goes or the time of a stream is over, and with it the generation. An error is an event, and `noted` for the log.
    pub(super) fn stream(
        self,
        noted: Noted,
        first: Option<Value>,
        part: impl Fn(&str) -> Value + Send + Sync + 'static,
        last: impl Fn(&Written) -> Vec<Value> + Send + Sync + 'static,
    ) -> Response {
        let (events, received) = channel::<Event>(WAITING);
        let limit = self.answering.limits().stream_time;
        tokio::spawn(async move {
            let sending = async {
                let parts = Parts { events: &events, part: &part };
                parts.event(first.as_ref()).await;
                let values = match self.written(Some(&parts)).await {
                    Ok(written) => last(&written),
                    Err(failure) => vec![error_event(&failure, &noted)],
                };
                for value in &values {
                    parts.event(Some(value)).await;
                }
            };
            let is_late = tokio::select! {
                sent = timeout(limit, sending) => sent.is_err(),
                () = events.closed() => return,
            };
            if is_late {
                // A client that does not read has no place for it.
                let _ = events.try_send(event(&error_event(&late(limit), &noted)));
            }
            let _ = timeout(limit, events.send(Event::default().data("[DONE]"))).await;
        });
        Sse::new(Events(received)).keep_alive(KeepAlive::default()).into_response()
    }
}

/// Sends the parts of a text.
struct Parts<'a> {
    events: &'a Sender<Event>,
    part: &'a (dyn Fn(&str) -> Value + Send + Sync),
}

impl Parts<'_> {
    async fn send(&self, text: &str) {
        if !text.is_empty() {
            self.event(Some(&(self.part)(text))).await;
        }
    }

    async fn event(&self, value: Option<&Value>) {
        if let Some(value) = value {
            // The stream ends when the client has gone.
            let _ = self.events.send(event(value)).await;
        }
    }
}

fn late(limit: Duration) -> Failure {
    Failure::new(Cause::TimedOut, format!("the stream took longer than {} s", limit.as_secs_f64()))
}

/// A failure as an event of a stream.
fn error_event(failure: &Failure, noted: &Noted) -> Value {
    let Failure { message, detail, .. } = failure;
    noted.error(detail.as_ref().unwrap_or(message).clone());
    Form::OpenAi.body(failure)
}

fn event(value: &Value) -> Event {
    Event::default().data(value.to_string())
}

/// The events of a channel as a stream.
struct Events(Receiver<Event>);

impl Stream for Events {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|event| event.map(Ok))
    }
}

/// Ends a text before the first of several texts. What could be the beginning of one is held back.
struct Stops {
    stops: Vec<String>,
    text: String,
    /// The bytes that were passed on. No stop begins in them.
    sent: usize,
    is_over: bool,
}

impl Stops {
    fn new(stops: Vec<String>) -> Self {
        Self { stops, text: String::new(), sent: 0, is_over: false }
    }

    /// Adds text. Returns what can be passed on.
    fn push(&mut self, text: &str) -> String {
        self.text.push_str(text);
        let open = &self.text[self.sent..];
        if let Some(end) = self.stops.iter().filter_map(|stop| open.find(stop.as_str())).min() {
            self.text.truncate(self.sent + end);
            self.is_over = true;
            return self.take(self.text.len());
        }
        let is_begun = |at: &usize| {
            let end = &self.text[*at..];
            self.stops.iter().any(|stop| stop.starts_with(end))
        };
        let held = open.char_indices().map(|(at, _)| self.sent + at).find(is_begun);
        self.take(held.unwrap_or(self.text.len()))
    }

    /// What was held back.
    fn rest(&mut self) -> String {
        self.take(self.text.len())
    }

    fn take(&mut self, end: usize) -> String {
        let part = self.text.get(self.sent..end).unwrap_or_default().to_owned();
        self.sent = self.sent.max(end);
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(stops: &[&str], texts: &[&str]) -> (Vec<String>, String, bool) {
        let mut found = Stops::new(stops.iter().map(ToString::to_string).collect());
        let mut parts: Vec<String> = Vec::new();
        for text in texts {
            parts.push(found.push(text));
            if found.is_over {
                break;
            }
        }
        parts.push(found.rest());
        (parts, found.text.clone(), found.is_over)
    }

    #[test]
    fn a_text_ends_before_a_stop_that_comes_in_parts() {
        let (sent, text, is_over) = parts(&["\n\n", "END"], &["ab", "E", "N", "x", "E", "ND rest", "never"]);
        assert_eq!((text.as_str(), is_over), ("abENx", true));
        assert_eq!(sent, ["ab", "", "", "ENx", "", "", ""]);
    }

    #[test]
    fn what_only_began_like_a_stop_is_passed_on_at_the_end() {
        let (sent, text, is_over) = parts(&["END"], &["é", "EN"]);
        assert_eq!((sent.concat().as_str(), text.as_str(), is_over), ("éEN", "éEN", false));
        let (sent, _, _) = parts(&[], &["a", "b"]);
        assert_eq!(sent, ["a", "b", ""]);
    }
}
