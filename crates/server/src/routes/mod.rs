//! The endpoints, one file for each API.

mod answer;
mod browse;
mod cutting;
mod facts;
mod openai;
mod operations;
mod others;
mod page;
mod rerank;
mod search;
mod tei;
mod vectors;

use std::sync::Arc;

use axum::{Router, extract::DefaultBodyLimit, middleware};
use serde_json::Value;
use tower_http::{
    CompressionLevel,
    compression::{
        CompressionLayer, Predicate,
        predicate::{NotForContentType, SizeAbove},
    },
};

use crate::{
    Cause, Failure, State,
    http::{Api, guard},
    mcp,
};

/// The shortest response that is compressed, in bytes. A shorter one is sent in one packet as it is.
const SHORTEST: u16 = 1024;

/// All endpoints with their description.
fn api() -> (Router<Arc<State>>, Value) {
    let api = Api::new();
    let api = answer::add(api);
    let api = facts::add(api);
    let api = search::add(api);
    let api = tei::add(api);
    let api = openai::add(api);
    let api = rerank::add(api);
    let api = operations::add(api);
    let api = browse::add(api);
    let api = mcp::describe(api);
    page::add(api).finish()
}

/// The router of a server.
pub(crate) fn router(state: Arc<State>) -> Router {
    let body = state.limits().body;
    let (router, description) = api();
    let router = operations::describe(router, description);
    router
        .merge(mcp::router(&state))
        .fallback(async || {
            Failure::new(Cause::NotFound, "there is no such path; `GET /openapi.json` lists them")
        })
        .method_not_allowed_fallback(async || {
            Failure::new(Cause::Method, "this path does not take this method")
        })
        .layer(compression())
        .layer(DefaultBodyLimit::max(body))
        .layer(middleware::from_fn_with_state(Arc::clone(&state), guard))
        .with_state(state)
}

/// Compresses responses for clients that take it: not short ones, and not streams of events, of which each event is sent at once.
fn compression() -> CompressionLayer<impl Predicate> {
    let worthwhile = SizeAbove::new(SHORTEST).and(NotForContentType::SSE).and(NotForContentType::IMAGES);
    CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(worthwhile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_is_described_with_its_types() {
        let (_, description) = api();
        let paths = description["paths"].as_object().unwrap();
        assert!(paths.len() > 8, "{paths:?}");
        let schemas = description["components"]["schemas"].as_object().unwrap();
        // Every reference leads to a schema.
        let text = description.to_string();
        let references: Vec<&str> = text.split("#/components/schemas/").skip(1).collect();
        assert!(!references.is_empty());
        for reference in references {
            let name = reference.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
        for (path, operations) in paths {
            for operation in operations.as_object().unwrap().values() {
                assert!(!operation["summary"].as_str().unwrap().is_empty(), "{path}");
                assert!(!operation["tags"][0].as_str().unwrap().is_empty(), "{path}");
                for part in path.split('{').skip(1) {
                    let name = part.split('}').next().unwrap();
                    let parameters = operation["parameters"].as_array().unwrap();
                    assert!(parameters.iter().any(|parameter| parameter["name"] == name), "{path}: {name}");
                }
            }
        }
    }
}
