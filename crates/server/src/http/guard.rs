//! What every request passes: its id, the key, the host, the time limit, the log and the metrics.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::{
    body::Body,
    extract::{Request, State as Shared},
    http::{HeaderMap, HeaderName, HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use percent_encoding::percent_decode_str;

use super::{
    body::too_long,
    log::{Followed, Line},
};
use crate::{Cause, Failure, State, failure::Form};

/// The header of a request's id.
const ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id that a client may give.
const LONGEST_ID: usize = 64;

/// The id of a request: the client's `x-request-id`, or one of the server's.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

/// The number of requests so far, and of requests that are open.
static COUNT: AtomicU64 = AtomicU64::new(0);

impl RequestId {
    fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(&ID).and_then(|id| id.to_str().ok());
        let is_plain = |id: &&str| {
            (1..=LONGEST_ID).contains(&id.len())
                && id.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        Self(given.filter(is_plain).map_or_else(Self::fresh, str::to_owned))
    }

    fn fresh() -> String {
        format!("{:x}-{:x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Answers a request, or refuses it in the form of its API.
pub(crate) async fn guard(Shared(state): Shared<Arc<State>>, mut request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers());
    request.extensions_mut().insert(id.clone());
    let mut line = Line::begin(&state, &id.0, &request);
    request.extensions_mut().insert(line.noted());
    let mut response = match refused(&state, &request) {
        Some(failure) => failure.into_response(),
        None => {
            let limit = state.limits().time;
            tokio::time::timeout(limit, next.run(request)).await.unwrap_or_else(|_| {
                let message = format!("the request took longer than {} s (--max-seconds)", limit.as_secs());
                Failure { retry_after: Some(1), ..Failure::new(Cause::TimedOut, message) }.into_response()
            })
        }
    };
    if let Some(failure) = response.extensions_mut().remove::<Failure>() {
        let methods = response.headers_mut().remove(header::ALLOW);
        response = Form::of(line.path()).response(&failure);
        if let Some(methods) = methods {
            response.headers_mut().insert(header::ALLOW, methods);
        }
        line.noted().error(failure.detail.unwrap_or(failure.message));
    }
    if let Ok(id) = HeaderValue::from_str(&id.0) {
        response.headers_mut().insert(ID, id);
    }
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    line.answered(response.status().as_u16());
    response.map(|body| Body::new(Followed::new(body, line)))
}

/// Why a request is not answered.
fn refused(state: &State, request: &Request) -> Option<Failure> {
    let headers = request.headers();
    if state.options().host.is_loopback() && !is_own_host(headers) {
        // A page of another site can make a browser call a loopback address by a name of its own.
        let message = "host: expected a loopback address or `localhost`";
        return Some(Failure::new(Cause::Forbidden, message));
    }
    let path = percent_decode_str(request.uri().path());
    if path.decode_utf8().is_err() {
        return Some(Failure::new(Cause::Invalid, "the path of the address is not UTF-8"));
    }
    no_key(state, request).or_else(|| {
        // Nothing is read of a body that says that it is too long.
        let length = headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse::<u64>().ok()?;
        let most = state.limits().body;
        (length > most as u64).then(|| too_long(most))
    })
}

/// Why a request is not answered whose key is missing or wrong.
fn no_key(state: &State, request: &Request) -> Option<Failure> {
    let headers = request.headers();
    let key = state.key().filter(|_| !is_open(request.method(), request.uri().path()))?;
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    let other = headers.get("x-api-key").and_then(|value| value.to_str().ok());
    match bearer.or(other) {
        Some(given) if key.is(given) => None,
        Some(_) => Some(Failure::new(Cause::Unauthorized, "the key is wrong")),
        None => {
            let message = "expected a key in the header `authorization: Bearer KEY` or `x-api-key: KEY`";
            Some(Failure::new(Cause::Unauthorized, message))
        }
    }
}

/// Whether a path needs no key: the page, which has no data, and what tells that the server runs.
fn is_open(method: &Method, path: &str) -> bool {
    (method == Method::GET || method == Method::HEAD)
        && (matches!(path, "/" | "/health" | "/ready") || path.starts_with("/page/"))
}

/// Whether the host that the client asked for is this machine.
fn is_own_host(headers: &HeaderMap) -> bool {
    // A name that is not ASCII is not one of this machine's.
    headers.get_all(header::HOST).iter().all(|host| host.to_str().is_ok_and(is_loopback))
}

/// Whether a host, which may have a port, is this machine by a loopback address or `localhost`.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_server_is_called_by_loopback_names() {
        let is_own = |host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            is_own_host(&headers)
        };
        assert!(
            ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:80", "127.9.9.9"]
                .map(is_own)
                .iter()
                .all(|own| *own)
        );
        let mut two = HeaderMap::new();
        for host in ["localhost", "example.org"] {
            two.append(header::HOST, HeaderValue::from_static(host));
        }
        assert!(is_own_host(&HeaderMap::new()) && !is_own_host(&two));
        assert!(
            !["example.org", "localhost.example.org:80", "10.0.0.1", "[::2]"]
                .map(is_own)
                .iter()
                .any(|own| *own)
        );
    }

    #[test]
    fn a_client_s_id_is_kept_if_it_is_plain() {
        let id = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ID, HeaderValue::from_static(text));
            RequestId::of(&headers).0
        };
        assert_eq!(id("a-1_B.2"), "a-1_B.2");
        assert_ne!(id("a b"), "a b");
        assert_ne!(id("a b"), id("a b"));
    }
}
