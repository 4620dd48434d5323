//! The two ways to speak the protocol.

use std::{io, sync::Arc};

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{Request, State as Shared},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{Next, from_fn_with_state, map_response},
    response::{IntoResponse, Response},
};
use rmcp::{
    service::{ServerInitializeError, serve_server},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};
use sporran_kilt::observe::Observer;
use tokio::io::{BufReader, stdin, stdout};

use super::{Mcp, message::checked, stdio::Lines};
use crate::{
    Cause, Error, Failure, Result, ServerOptions, State, Stop,
    http::{Api, Noted, is_loopback, whole},
};

/// The path of the protocol.
const PATH: &str = "/mcp";
/// The longest text of an error.
const MOST_BYTES: usize = 1 << 16;

/// Speaks the protocol over standard input and output until the input ends. Only the protocol is written to standard output.
///
/// # Errors
/// Errors of what the options name, and a client that does not speak the protocol.
pub fn serve_stdio(options: ServerOptions, observe: &mut Observer<'_>) -> Result<()> {
    let failed = |what: &str, source| Error::Io { what: what.to_owned(), source };
    let state = Arc::new(State::open(options, Stop::new(), observe)?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|source| failed("the threads of the server", source))?;
    let done = runtime.block_on(async {
        let limits = state.limits();
        let lines = Lines::new(BufReader::new(stdin()), stdout(), limits.body, limits.time);
        let running = match serve_server(Mcp::new(state), lines).await {
            Ok(running) => running,
            // The client closed its end before it asked for anything.
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(failed("the client", io::Error::other(error.to_string()))),
        };
        running.waiting().await.map(|_| ()).map_err(|error| failed("the client", io::Error::other(error)))
    });
    // The thread that reads standard input blocks until its input ends.
    runtime.shutdown_background();
    done
}

/// The protocol over HTTP. There are no sessions, so that clients leave nothing in memory; the guard of the server checks
/// keys and hosts.
pub(crate) fn router(state: &Arc<State>) -> Router<Arc<State>> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(state.limits().body)
        .disable_allowed_hosts();
    let mcp = Mcp::new(Arc::clone(state));
    let sessions = Arc::new(NeverSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(mcp.clone()), sessions, config);
    let router = Router::new().route_service(PATH, service).layer(map_response(in_json));
    router.layer(from_fn_with_state(Arc::clone(state), sound))
}

/// A message of the protocol from a client, in JSON-RPC 2.0.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is a description")]
struct McpRequest {
    /// `2.0`.
    jsonrpc: String,
    /// A text or a whole number. A notification has none.
    id: Option<Value>,
    /// The method, such as `tools/call`.
    method: String,
    /// The values of the method.
    params: Option<Map<String, Value>>,
}

/// The answer to a request of the protocol.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is a description")]
struct McpResponse {
    /// `2.0`.
    jsonrpc: String,
    /// The id of the request, if it could be read.
    id: Option<Value>,
    /// What the method returns.
    result: Option<Value>,
    /// What went wrong.
    error: Option<McpError>,
}

/// An error of JSON-RPC 2.0.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is a description")]
struct McpError {
    /// The number of the error: -32700 for a body that is not JSON, -32600 for one that is no request.
    code: i32,
    /// What was expected and what came.
    message: String,
}

/// Describes the endpoint, which [`router`] has.
pub(crate) fn describe<S: Clone + Send + Sync + 'static>(api: Api<S>) -> Api<S> {
    let others = [
        ("202", "The notification was taken"),
        ("406", "The header `accept` lacks `application/json` or `text/event-stream`"),
    ];
    let summary = "A message of the Model Context Protocol: tools and resources for agents";
    let api = api.group("MCP").described::<McpRequest, McpResponse>(PATH, summary, &others);
    api.refuses_with::<McpResponse>(PATH)
}

/// Refuses what comes from a page of another site, and bodies that are no message of JSON-RPC.
async fn sound(
    Shared(state): Shared<Arc<State>>,
    Extension(noted): Extension<Noted>,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let headers = request.headers();
    if is_foreign(headers, state.options().host.is_loopback()) {
        let message = "origin: expected an address of this server; pages of other sites may not call it";
        return Err(Failure::new(Cause::Forbidden, message));
    }
    // Of other types the transport says what it expects.
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_json =
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if request.method() != Method::POST || !is_json {
        return Ok(next.run(request).await);
    }
    let (mut parts, body) = request.into_parts();
    let bytes = whole(Request::from_parts(parts.clone(), body), &state).await?;
    if let Err(error) = checked(&bytes) {
        noted.error(error.error.message.to_string());
        return Ok((StatusCode::BAD_REQUEST, Json(error)).into_response());
    }
    for length in [header::CONTENT_ENCODING, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(length);
    }
    Ok(next.run(Request::from_parts(parts, Body::from(bytes))).await)
}

/// Whether a browser sends a request for a page of another site. Only browsers send the header `origin`.
fn is_foreign(headers: &HeaderMap, listens_on_loopback: bool) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    // `null` is a page without an origin, such as one in a frame that is shut off.
    let Some((_, own)) = origin.to_str().ok().and_then(|origin| origin.split_once("://")) else {
        return true;
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let is_same = host.is_some_and(|host| host.eq_ignore_ascii_case(own));
    !(is_same || (listens_on_loopback && is_loopback(own)))
}

/// An error that the transport has as plain text, in the form of the server's other errors.
async fn in_json(Extension(noted): Extension<Noted>, response: Response) -> Response {
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, MOST_BYTES).await.unwrap_or_default();
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind.is_some_and(|kind| kind.starts_with("application/json")) {
        let error = serde_json::from_slice::<Value>(&text).unwrap_or_default();
        noted.error(error["error"]["message"].as_str().unwrap_or_default().to_owned());
        return Response::from_parts(parts, Body::from(text));
    }
    let message = match status {
        StatusCode::NOT_ACCEPTABLE => {
            "expected the header `accept: application/json, text/event-stream`, found another".to_owned()
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            "expected the header `content-type: application/json`, found another".to_owned()
        }
        _ if text.is_empty() => status.to_string(),
        _ => String::from_utf8_lossy(&text).into_owned(),
    };
    noted.error(message.clone());
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(json!({ "error": message }).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_this_server_s_or_on_this_machine() {
        let is_foreign = |origin: &'static str, host: &'static str, listens_on_loopback: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            is_foreign(&headers, listens_on_loopback)
        };
        assert!(!super::is_foreign(&HeaderMap::new(), true));
        assert!(!is_foreign("http://localhost:6274", "127.0.0.1:8080", true));
        assert!(!is_foreign("https://notes.example", "notes.example", false));
        for (origin, listens_on_loopback) in [
            ("http://attacker.example", true),
            ("http://localhost.attacker.example", true),
            ("http://attacker.example", false),
            ("http://localhost:6274", false),
            ("null", true),
            ("localhost", true),
        ] {
            assert!(is_foreign(origin, "127.0.0.1:8080", listens_on_loopback), "{origin}");
        }
    }
}
