//! An answer while it is written.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_core::Stream;
use serde_json::{Value, json};
use sporran_pipeline::workflows::answer::CitedAnswer;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel};

use super::{Usage, settings::Settings};
use crate::{
    Answering, Failure,
    mounts::{AnswerResponse, Found},
    work::{Generated, Piece, Prompted},
};

/// The events of a stream that may wait for a slow client.
const WAITING: usize = 64;

/// An answer that was begun.
pub(super) struct Writing {
    answering: Arc<Answering>,
    pieces: UnboundedReceiver<Piece>,
    /// The passages of an answer over the index.
    found: Option<Found>,
    top: Option<usize>,
    stops: Vec<String>,
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
}

impl Writing {
    /// Begins an answer over the index to a question.
    ///
    /// # Errors
    /// Wrong settings, a full queue, and errors of the index.
    pub(super) async fn over_index(
        answering: &Arc<Answering>,
        question: &str,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        let (options, stops) = (settings.options()?, settings.stops()?);
        let top = answering.checked("sporran.top", settings.sporran.top)?;
        let found = answering.found(question, false).await?;
        let pieces = answering.begin(&found, options)?;
        let answering = Arc::clone(answering);
        Ok(Self { answering, pieces, found: Some(found), top, stops })
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
        let stops = settings.stops()?;
        let pieces = answering.begin_bare(prompted, settings.options()?)?;
        Ok(Self { answering: Arc::clone(answering), pieces, found: None, top: None, stops })
    }

    /// The answer as a whole. `write` receives the text in parts, and ends the answer by an error.
    ///
    /// # Errors
    /// Errors of the models, and those of `write`.
    async fn written(mut self, parts: Option<&Sender<Part>>) -> Result<Written, Failure> {
        let mut stops = Stops::new(std::mem::take(&mut self.stops));
        let (mut is_stopped, mut done) = (false, None);
        while let Some(piece) = self.pieces.recv().await {
            match piece {
                Piece::Text(text) => {
                    let part = stops.push(&text);
                    is_stopped = stops.is_over;
                    if let (Some(parts), false) = (parts, part.is_empty())
                        && parts.send(Part::Text(part)).await.is_err()
                    {
                        return Err(Failure::new(crate::Cause::Stopping, "the client has gone"));
                    }
                    if is_stopped {
                        break;
                    }
                }
                Piece::Done(result) => {
                    done = Some(*result);
                    break;
                }
            }
        }
        // The generator ends an answer whose receiver is gone.
        drop(self.pieces);
        let (text, reason, usage) = match (done, is_stopped) {
            (_, true) => (stops.text.clone(), "stop", Usage::of(0, stops.pieces)),
            (Some(result), false) => {
                let Generated { generation, read, is_cut } = result?;
                let reason = if is_cut { "length" } else { "stop" };
                (generation.text, reason, Usage::of(read, generation.tokens))
            }
            (None, false) => return Err(Failure::internal("a generator has ended")),
        };
        let rest = stops.rest();
        if let (Some(parts), false) = (parts, rest.is_empty()) {
            // The client may have gone.
            let _ = parts.send(Part::Text(rest)).await;
        }
        let Some(found) = self.found else { return Ok(Written { text, cited: None, reason, usage }) };
        let cited: CitedAnswer = self.answering.cited(found, text, self.top).await?;
        let name = self.answering.name();
        let cited = AnswerResponse::new(name, cited, self.answering.store(), None, 0.0);
        Ok(Written { text: cited.answer.clone(), cited: Some(cited), reason, usage })
    }

    /// The answer as a whole.
    ///
    /// # Errors
    /// Errors of the models.
    pub(super) async fn whole(self) -> Result<Written, Failure> {
        self.written(None).await
    }

    /// The answer as server-sent events: `first`, then one for each part of the text, and `last` for the end.
    pub(super) fn stream(
        self,
        first: Option<Value>,
        part: impl Fn(&str) -> Value + Send + Sync + 'static,
        last: impl Fn(&Written) -> Vec<Value> + Send + Sync + 'static,
    ) -> Response {
        let (events, received) = channel::<Event>(WAITING);
        let (parts, mut texts) = channel::<Part>(WAITING);
        tokio::spawn(async move {
            if let Some(first) = first {
                let _ = events.send(event(&first)).await;
            }
            let writing = async move {
                let written = self.written(Some(&parts)).await;
                // The client may have gone.
                let _ = parts.send(Part::End(Box::new(written))).await;
            };
            let sending = async {
                while let Some(next) = texts.recv().await {
                    let values = match next {
                        Part::Text(text) => vec![part(&text)],
                        Part::End(written) => match *written {
                            Ok(written) => last(&written),
                            Err(failure) => vec![
                                json!({ "error": { "message": failure.message, "type": "server_error" } }),
                            ],
                        },
                    };
                    for value in values {
                        if events.send(event(&value)).await.is_err() {
                            return;
                        }
                    }
                }
                let _ = events.send(Event::default().data("[DONE]")).await;
            };
            tokio::pin!(writing, sending);
            tokio::select! {
                () = &mut sending => {}
                () = &mut writing => sending.await,
                // The client has gone, perhaps before the first text. The generation ends with `writing`.
                () = events.closed() => {}
            }
        });
        Sse::new(Events(received)).keep_alive(KeepAlive::default()).into_response()
    }
}

/// A part of a stream.
enum Part {
    Text(String),
    End(Box<Result<Written, Failure>>),
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
    /// The bytes that were passed on.
    sent: usize,
    /// The number of parts.
    pieces: usize,
    is_over: bool,
}

impl Stops {
    fn new(stops: Vec<String>) -> Self {
        Self { stops, text: String::new(), sent: 0, pieces: 0, is_over: false }
    }

    /// Adds text. Returns what can be passed on.
    fn push(&mut self, text: &str) -> String {
        self.text.push_str(text);
        self.pieces += 1;
        // What was passed on has no beginning of a stop.
        let fresh = &self.text[self.sent..];
        if let Some(end) = self.stops.iter().filter_map(|stop| fresh.find(stop.as_str())).min() {
            self.text.truncate(self.sent + end);
            self.is_over = true;
            return self.take(self.text.len());
        }
        let is_begun = |at: &usize| {
            let end = &self.text[*at..];
            self.stops.iter().any(|stop| stop.starts_with(end))
        };
        let held = self.text.char_indices().map(|(at, _)| at).filter(|at| *at >= self.sent).find(is_begun);
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
