//! The two ways to speak the protocol.

use std::{io, sync::Arc};

use rmcp::{
    service::serve_server,
    transport::{
        stdio,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
        },
    },
};
use sporran_kilt::observe::Observer;

use super::Mcp;
use crate::{Error, Result, ServerOptions, State, Stop};

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
        let serving = serve_server(Mcp::new(state), stdio());
        let running =
            serving.await.map_err(|error| failed("the client", io::Error::other(error.to_string())))?;
        running.waiting().await.map(|_| ()).map_err(|error| failed("the client", io::Error::other(error)))
    });
    // The thread that reads standard input blocks until its input ends.
    runtime.shutdown_background();
    done
}

/// The protocol over HTTP. There are no sessions, so that clients leave nothing in memory; the guard of the server checks
/// keys and hosts.
pub(crate) fn service(state: &Arc<State>) -> StreamableHttpService<Mcp, NeverSessionManager> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(state.limits().body)
        .disable_allowed_hosts();
    let mcp = Mcp::new(Arc::clone(state));
    StreamableHttpService::new(move || Ok(mcp.clone()), Arc::new(NeverSessionManager::default()), config)
}
