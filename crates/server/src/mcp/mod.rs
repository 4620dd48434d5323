//! The server as tools and resources of the Model Context Protocol, over standard input and output and over HTTP.

mod resources;
mod serve;
mod tools;

use std::sync::Arc;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, Implementation, ListResourceTemplatesResult,
        ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
        ReadResourceResponse, ServerCapabilities, ServerConfig,
    },
    service::RequestContext,
};

pub(crate) use serve::router;
pub use serve::serve_stdio;

use crate::{State, work::aside};

/// The instructions to agents.
const INSTRUCTIONS: &str = "Documents with search, and answers that name the passages they rest on. Use `search` to find \
                            passages, `get_document` to read around one, `answer` for a question with citations. Every \
                            passage has an id, a document, a paragraph and characters: cite them.";

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
        tokio::select! {
            result = tools::call(&self.state, request) => result.map(CallToolResponse::from),
            // The work that waits is dropped with its future.
            () = context.ct.cancelled() => Err(ErrorData::internal_error("the request was cancelled", None)),
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let (mounts, cursor) = (self.state.mounts(), request.and_then(|request| request.cursor));
        read(move || resources::list(&mounts, cursor.as_deref())).await
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
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let mounts = self.state.mounts();
        read(move || resources::read(&mounts, &request.uri)).await.map(ReadResourceResponse::from)
    }
}

/// Reads documents away from the threads that answer requests.
async fn read<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ErrorData> + Send + 'static,
) -> Result<T, ErrorData> {
    let found = aside(move || Ok(work())).await;
    found.map_err(|failure| ErrorData::internal_error(failure.message, None))?
}
