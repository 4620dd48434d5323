//! Whether the server runs, its metrics, its description.

use std::sync::Arc;

use axum::{
    Json, Router, body::Bytes, extract::State as Shared, http::header, response::IntoResponse, routing,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    Cause, Failure, State,
    http::{Api, Takes, refused},
};

/// The type of the text form of metrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) fn add(api: Api<Arc<State>>) -> Api<Arc<State>> {
    api.group("Operations")
        .get::<Health, _>("/health", "Whether the process runs", &[], health)
        .get::<Health, _>("/ready", "Whether it takes requests", &[], ready)
        .file("/metrics", OPEN_METRICS, "Counts and times, for Prometheus", &[], metrics)
}

/// Adds the description of all endpoints as an endpoint.
pub(super) fn describe(router: Router<Arc<State>>, mut description: Value) -> Router<Arc<State>> {
    let mut responses = refused("/openapi.json", Takes::Nothing);
    let content = json!({ "application/json": { "schema": {} } });
    responses.insert("200".into(), json!({ "description": "The description", "content": content }));
    description["paths"]["/openapi.json"] = json!({ "get": {
        "tags": ["Operations"],
        "summary": "This description, in the form of OpenAPI 3.0",
        "parameters": [],
        "responses": responses,
    } });
    let headers = [(header::CONTENT_TYPE, "application/json")];
    let text = Bytes::from(description.to_string());
    router.route("/openapi.json", routing::get(async move || (headers, text)))
}

/// The state of a server.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Health {
    /// `ok`.
    status: &'static str,
    /// The version of the program.
    version: &'static str,
}

const OK: Health = Health { status: "ok", version: env!("CARGO_PKG_VERSION") };

async fn health() -> Json<Health> {
    Json(OK)
}

async fn ready(Shared(state): Shared<Arc<State>>) -> Result<Json<Health>, Failure> {
    match state.is_stopping() {
        true => Err(Failure::new(Cause::Stopping, "the server is about to end")),
        false => Ok(Json(OK)),
    }
}

async fn metrics(Shared(state): Shared<Arc<State>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], state.metrics().text())
}
