//! The two ways to speak the protocol.

use std::{io, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, StatusCode, header},
    middleware::map_response,
    response::Response,
};
use rmcp::{
    service::{ServerInitializeError, serve_server},
    transport::{
        stdio,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
        },
    },
};
use serde_json::json;
use sporran_kilt::observe::Observer;

use super::Mcp;
use crate::{Error, Result, ServerOptions, State, Stop};

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
        let running = match serve_server(Mcp::new(state), stdio()).await {
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
    Router::new().route_service(PATH, service).layer(map_response(in_json))
}

/// An error that the transport has as plain text, in the form of the server's other errors.
async fn in_json(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_json = kind.is_some_and(|kind| kind.starts_with("application/json"));
    if is_json || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, MOST_BYTES).await.unwrap_or_default();
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
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(json!({ "error": message }).to_string()))
}
