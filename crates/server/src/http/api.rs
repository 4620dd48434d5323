//! The table of endpoints, from which both the router and `/openapi.json` are made.

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    handler::Handler,
    middleware::{self, Next},
    routing,
};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    errors::{self, Takes},
    query::only_known,
};

/// Endpoints with their descriptions.
pub(crate) struct Api<S> {
    router: Router<S>,
    paths: Map<String, Value>,
    schemas: SchemaGenerator,
    tag: &'static str,
}

/// A parameter in the path or the query of an address.
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    /// Its name.
    pub(crate) name: &'static str,
    /// `string`, `integer` or `boolean`.
    pub(crate) kind: &'static str,
    /// Whether it must be given.
    pub(crate) required: bool,
    /// What it is.
    pub(crate) summary: &'static str,
}

impl<S: Clone + Send + Sync + 'static> Api<S> {
    pub(crate) fn new() -> Self {
        let schemas = SchemaSettings::openapi3().into_generator();
        Self { router: Router::new(), paths: Map::new(), schemas, tag: "" }
    }

    /// The name of the group of the endpoints that follow.
    pub(crate) fn group(mut self, tag: &'static str) -> Self {
        self.tag = tag;
        self
    }

    /// Adds an endpoint that reads a body of type `I` and returns one of type `O`.
    pub(crate) fn post<I: JsonSchema, O: JsonSchema, T: 'static>(
        mut self,
        path: &str,
        summary: &str,
        handler: impl Handler<T, S>,
    ) -> Self {
        let body = json!({ "required": true, "content": self.content::<I>() });
        let output = self.content::<O>();
        self.describe(path, "post", summary, &[], Some(body), output);
        self.route(path, routing::post(handler), &[])
    }

    /// Describes an endpoint that another router has, as [`post`](Self::post). `others` are further responses by their status.
    pub(crate) fn described<I: JsonSchema, O: JsonSchema>(
        mut self,
        path: &str,
        summary: &str,
        others: &[(&str, &str)],
    ) -> Self {
        let body = json!({ "required": true, "content": self.content::<I>() });
        let output = self.content::<O>();
        self.describe(path, "post", summary, &[], Some(body), output);
        let responses = &mut self.paths[path]["post"]["responses"];
        for (status, summary) in others {
            responses[status] = json!({ "description": summary });
        }
        self
    }

    /// Says that the endpoint of a path, which [`described`](Self::described) has, answers a wrong body with `O` or in the form of
    /// its API.
    pub(crate) fn refuses_with<O: JsonSchema>(mut self, path: &str) -> Self {
        let own = self.schemas.subschema_for::<O>();
        let plain = errors::plain(&mut self.schemas);
        self.paths[path]["post"]["responses"]["400"] = json!({
            "description": "The body is no message, or a value is wrong",
            "content": { "application/json": { "schema": { "anyOf": [own, plain] } } },
        });
        self
    }

    /// Says that the endpoint of a path, which was added by [`post`](Self::post), answers with server-sent events if the request
    /// has `stream`.
    pub(crate) fn streams(mut self, path: &str) -> Self {
        let content = &mut self.paths[path]["post"]["responses"]["200"]["content"];
        content["text/event-stream"] = json!({ "schema": { "type": "string" } });
        self
    }

    /// Adds an endpoint that returns a body of type `O`.
    pub(crate) fn get<O: JsonSchema, T: 'static>(
        mut self,
        path: &str,
        summary: &str,
        parameters: &[Parameter],
        handler: impl Handler<T, S>,
    ) -> Self {
        let output = self.content::<O>();
        self.describe(path, "get", summary, parameters, None, output);
        self.route(path, routing::get(handler), parameters)
    }

    /// Adds a route, which refuses parameters of the query that it does not know.
    fn route(mut self, path: &str, route: routing::MethodRouter<S>, parameters: &[Parameter]) -> Self {
        let known = parameters.iter().filter(|parameter| place(path, parameter.name) == "query");
        let known: Arc<[&'static str]> = known.map(|parameter| parameter.name).collect();
        let check = middleware::from_fn(move |request: Request, next: Next| {
            only_known(Arc::clone(&known), request, next)
        });
        self.router = self.router.route(path, route.route_layer(check));
        self
    }

    /// Adds an endpoint that returns something else than JSON.
    pub(crate) fn file<T: 'static>(
        mut self,
        path: &str,
        kind: &str,
        summary: &str,
        parameters: &[Parameter],
        handler: impl Handler<T, S>,
    ) -> Self {
        let output = json!({ kind: { "schema": { "type": "string" } } });
        self.describe(path, "get", summary, parameters, None, output);
        self.router = self.router.route(path, routing::get(handler));
        self
    }

    /// A body of type `T`.
    fn content<T: JsonSchema>(&mut self) -> Value {
        let schema = Value::from(self.schemas.subschema_for::<T>());
        // The schema of any value is `true`, for which OpenAPI 3.0 has an empty object.
        let schema = if schema == json!(true) { json!({}) } else { schema };
        json!({ "application/json": { "schema": schema } })
    }

    fn describe(
        &mut self,
        path: &str,
        method: &str,
        summary: &str,
        parameters: &[Parameter],
        body: Option<Value>,
        output: Value,
    ) {
        let parameter = |parameter: &Parameter| {
            let Parameter { name, kind, required, summary } = *parameter;
            let mut schema = json!({ "type": kind });
            if kind == "integer" {
                schema["minimum"] = 0.into();
            }
            json!({
                "name": name, "in": place(path, name), "required": required, "description": summary,
                "schema": schema,
            })
        };
        let parameters: Vec<Value> = parameters.iter().map(parameter).collect();
        let takes = if body.is_some() { Takes::Body } else { Takes::Nothing };
        let mut responses = errors::refused(path, takes);
        responses.insert("200".into(), json!({ "description": "The result", "content": output }));
        let mut operation = json!({
            "tags": [self.tag],
            "summary": summary,
            "parameters": parameters,
            "responses": responses,
        });
        if let Some(body) = body {
            operation["requestBody"] = body;
        }
        // A parameter that takes the rest of a path has a star in the router alone.
        let operations = self.paths.entry(path.replace("{*", "{")).or_insert_with(|| json!({}));
        operations[method] = operation;
    }

    /// The router, and the description of its endpoints.
    pub(crate) fn finish(mut self) -> (Router<S>, Value) {
        let responses = errors::responses(&mut self.schemas);
        let schemas = self.schemas.take_definitions(true);
        let description = json!({
            "openapi": "3.0.3",
            "info": {
                "title": "Sporran",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Answers with provenance, searches, embeddings and facts.",
            },
            "security": [{ "key": [] }, {}],
            "paths": self.paths,
            "components": {
                "schemas": schemas,
                "responses": responses,
                "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
            },
        });
        (self.router, description)
    }
}

/// Where a parameter is: in the path or in the query.
fn place(path: &str, name: &str) -> &'static str {
    let is_in_path = [format!("{{{name}}}"), format!("{{*{name}}}")].iter().any(|part| path.contains(part));
    if is_in_path { "path" } else { "query" }
}
