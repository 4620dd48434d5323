//! The table of endpoints, from which both the router and `/openapi.json` are made.

use axum::{Router, handler::Handler, routing};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

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
        self.router = self.router.route(path, routing::post(handler));
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
        self.router = self.router.route(path, routing::get(handler));
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
        // A parameter that takes the rest of a path has a star in the router alone.
        let path = path.replace("{*", "{");
        let place = |name: &str| if path.contains(&format!("{{{name}}}")) { "path" } else { "query" };
        let parameter = |parameter: &Parameter| {
            let Parameter { name, kind, required, summary } = *parameter;
            json!({
                "name": name, "in": place(name), "required": required, "description": summary,
                "schema": { "type": kind },
            })
        };
        let parameters: Vec<Value> = parameters.iter().map(parameter).collect();
        let mut operation = json!({
            "tags": [self.tag],
            "summary": summary,
            "parameters": parameters,
            "responses": {
                "200": { "description": "The result", "content": output },
                "default": { "description": "What went wrong, in the form of the API that the endpoint belongs to" },
            },
        });
        if let Some(body) = body {
            operation["requestBody"] = body;
        }
        let operations = self.paths.entry(path).or_insert_with(|| json!({}));
        operations[method] = operation;
    }

    /// The router, and the description of its endpoints.
    pub(crate) fn finish(mut self) -> (Router<S>, Value) {
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
                "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
            },
        });
        (self.router, description)
    }
}
