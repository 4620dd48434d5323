//! The line of a request in the log, and its metrics.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Instant,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{MatchedPath, Request},
    http::Method,
};
use hyper::body::{Frame, SizeHint};

use crate::State;

/// The status in the log and the metrics of a request whose client left before the response began.
const GONE: u16 = 499;

/// The error of a request, for its line in the log. A handler that fails after its response has begun, or in a form of its own,
/// notes the error here.
#[derive(Clone, Default)]
pub(crate) struct Noted(Arc<Mutex<Option<String>>>);

impl Noted {
    /// Notes an error. The first one stays.
    pub(crate) fn error(&self, error: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The line of a request. It is written when this is dropped: at the end of the response, or when the client leaves.
pub(super) struct Line {
    state: Arc<State>,
    begin: Instant,
    id: String,
    method: Method,
    path: String,
    route: String,
    /// The status of the response, and the seconds until its head.
    head: Option<(u16, f64)>,
    noted: Noted,
    /// Whether the whole response was passed on.
    is_over: bool,
}

impl Line {
    pub(super) fn begin(state: &Arc<State>, id: &str, request: &Request) -> Self {
        state.metrics().open.inc();
        let route = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str);
        Self {
            state: Arc::clone(state),
            begin: Instant::now(),
            id: id.to_owned(),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            route: route.to_owned(),
            head: None,
            noted: Noted::default(),
            is_over: false,
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn noted(&self) -> Noted {
        self.noted.clone()
    }

    /// The response begins.
    pub(super) fn answered(&mut self, status: u16) {
        let seconds = self.begin.elapsed().as_secs_f64();
        self.head = Some((status, seconds));
        self.state.metrics().answered(&self.method, &self.route, status, seconds);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let seconds = self.begin.elapsed().as_secs_f64();
        if self.head.is_none() {
            self.state.metrics().answered(&self.method, &self.route, GONE, seconds);
        }
        self.state.metrics().open.dec();
        let (status, head_seconds) = self.head.map_or((GONE, None), |(status, head)| (status, Some(head)));
        let gone = || (!self.is_over).then(|| "the connection ended before the response".to_owned());
        let error = self.noted.take().or_else(gone);
        tracing::info!(
            target: "sporran::requests",
            id = self.id,
            method = self.method.as_str(),
            path = self.path,
            status,
            seconds,
            head_seconds,
            error,
            "request"
        );
    }
}

/// The body of a response, with the line of its request.
pub(super) struct Followed {
    body: Body,
    line: Line,
}

impl Followed {
    pub(super) fn new(body: Body, mut line: Line) -> Self {
        // Nothing is taken from the body of a response without one.
        line.is_over = body.is_end_stream() || line.method == Method::HEAD;
        Self { body, line }
    }
}

impl HttpBody for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match &frame {
            Poll::Ready(Some(Err(error))) => self.line.noted.error(error.to_string()),
            Poll::Ready(_) => self.line.is_over = self.body.is_end_stream(),
            Poll::Pending => {}
        }
        if matches!(frame, Poll::Ready(None)) {
            self.line.is_over = true;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
