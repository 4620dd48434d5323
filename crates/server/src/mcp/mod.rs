//! The server as tools and resources of the Model Context Protocol, over standard input and output and over HTTP.

mod message;
mod resources;
mod serve;
mod stdio;
mod tools;

use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode, Implementation,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig,
    },
    service::RequestContext,
};

pub use serve::serve_stdio;
pub(crate) use serve::{describe, router};

use crate::{State, http::Noted, work::aside};

/// The instructions to agents.
const INSTRUCTIONS: &str = "Documents with search, and answers that name the passages they rest on. Use `search` to find \
                            passages, `get_document` to read around one, `answer` for a question with citations. Every \
                            passage has an id, a document, a paragraph and characters: cite them.";

/// The methods that the server has.
const KNOWN: [&str; 8] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/read",
    "resources/templates/list",
];

/// The handler of the protocol's requests.
#[derive(Clone)]
pub(crate) struct Mcp {
    state: Arc<State>,
}

impl Mcp {
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state }
    }
}

impl ServerHandler for Mcp {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        let implementation = Implementation::new("sporran", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(implementation).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::list(&self.state)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let noted = noted(&context);
        tokio::select! {
            result = tools::call(&self.state, request, &noted) => logged(result.map(CallToolResponse::from), &noted),
            // The work that waits is dropped with its future.
            () = context.ct.cancelled() => Err(ErrorData::internal_error("the request was cancelled", None)),
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let (mounts, cursor) = (self.state.mounts(), request.and_then(|request| request.cursor));
        logged(read(move || resources::list(&mounts, cursor.as_deref())).await, &noted(&context))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(vec![resources::template()]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let mounts = self.state.mounts();
        let found = read(move || resources::read(&mounts, &request.uri)).await;
        logged(found.map(ReadResourceResponse::from), &noted(&context))
    }

    /// `rmcp` hands over what it does not know, and requests whose parameters it cannot read.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        let error = match KNOWN.contains(&method.as_str()) {
            true => ErrorData::invalid_params(format!("`params`: expected those of `{method}`"), None),
            false => {
                ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("there is no method `{method}`"), None)
            }
        };
        logged(Err(error), &noted(&context))
    }
}

/// The place for the error of a request that came over HTTP; for others one that nobody reads.
fn noted(context: &RequestContext<RoleServer>) -> Noted {
    let parts = context.extensions.get::<Parts>();
    parts.and_then(|parts| parts.extensions.get::<Noted>().cloned()).unwrap_or_default()
}

/// A result, whose error is noted for the log.
fn logged<T>(result: Result<T, ErrorData>, noted: &Noted) -> Result<T, ErrorData> {
    result.inspect_err(|error| noted.error(error.message.to_string()))
}

/// Reads documents away from the threads that answer requests.
async fn read<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ErrorData> + Send + 'static,
) -> Result<T, ErrorData> {
    let found = aside(move || Ok(work())).await;
    found.map_err(|failure| ErrorData::internal_error(failure.message, None))?
}
