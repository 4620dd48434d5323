//! The description of what requests fail with.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::failure::Form;

/// What went wrong, in the form of Pyserini and of our own endpoints.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is a description")]
struct PlainError {
    /// What was expected and what came.
    error: String,
}

/// What went wrong, in the form of text-embeddings-inference.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is a description")]
struct TeiError {
    /// What was expected and what came.
    error: String,
    /// `Validation`, `Overloaded`, `Backend` or `Unhealthy`.
    error_type: String,
}

/// What went wrong, in the form of OpenAI.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is a description")]
struct OpenAiError {
    /// The error.
    error: OpenAiErrorDetail,
}

/// An error of OpenAI's API.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is a description")]
struct OpenAiErrorDetail {
    /// What was expected and what came.
    message: String,
    /// `invalid_request_error`, `rate_limit_error` or `server_error`.
    #[schemars(rename = "type")]
    kind: String,
    /// The field of the request, if it is one.
    param: Option<String>,
    /// The kind of error in a word.
    code: String,
}

/// What went wrong, in the form of Jina.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is a description")]
struct JinaError {
    /// What was expected and what came.
    detail: String,
}

/// What went wrong, in the form of Cohere.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is a description")]
struct CohereError {
    /// What was expected and what came.
    message: String,
}

/// Which requests an endpoint gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Those without a body.
    Nothing,
    /// Those with a body.
    Body,
}

/// The statuses of refused requests, with what they mean.
const STATUSES: [(u16, &str); 12] = [
    (400, "A value is missing or wrong, a parameter is unknown, or the body is not JSON"),
    (401, "The key is missing or wrong"),
    (403, "The host or the origin that the request names is not this server's"),
    (404, "There is no such mount, model, document or other thing"),
    (405, "The path does not take this method"),
    (413, "The body, a text or the batch is too large"),
    (415, "The body is not `application/json`, or has an encoding other than gzip"),
    (422, "A value is missing or wrong"),
    (424, "The model failed"),
    (429, "Too much waits already"),
    (500, "A model or an index failed"),
    (503, "The answer took too long, or the server is about to end"),
];

/// The responses of an endpoint to requests that it refuses, by status. Each is a reference to one of [`responses`].
pub(crate) fn refused(path: &str, takes: Takes) -> Map<String, Value> {
    let form = Form::of(path);
    let can = |status: u16| match status {
        415 => takes == Takes::Body,
        422 | 424 => form == Form::Tei,
        500 => form != Form::Tei,
        _ => true,
    };
    let reference = |(status, _): &(u16, &str)| {
        let name = format!("#/components/responses/{form:?}{status}");
        (status.to_string(), json!({ "$ref": name }))
    };
    STATUSES.iter().filter(|(status, _)| can(*status)).map(reference).collect()
}

/// The schema of an error in the form of our own endpoints.
pub(super) fn plain(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<PlainError>()
}

/// The responses to requests that are refused, by name, for every form.
pub(super) fn responses(schemas: &mut SchemaGenerator) -> Map<String, Value> {
    let mut all = Map::new();
    let forms = [
        (Form::Plain, schemas.subschema_for::<PlainError>()),
        (Form::Tei, schemas.subschema_for::<TeiError>()),
        (Form::OpenAi, schemas.subschema_for::<OpenAiError>()),
        (Form::Jina, schemas.subschema_for::<JinaError>()),
        (Form::Cohere, schemas.subschema_for::<CohereError>()),
    ];
    for (form, schema) in forms {
        for (status, summary) in STATUSES {
            let mut response =
                json!({ "description": summary, "content": { "application/json": { "schema": schema } } });
            let header = match status {
                401 => Some(("WWW-Authenticate", "`Bearer`", "string")),
                405 => Some(("Allow", "The methods that the path takes", "string")),
                429 | 503 => {
                    Some(("Retry-After", "The seconds after which another try may succeed", "integer"))
                }
                _ => None,
            };
            if let Some((name, summary, kind)) = header {
                response["headers"] = json!({ name: { "description": summary, "schema": { "type": kind } } });
            }
            all.insert(format!("{form:?}{status}"), response);
        }
    }
    all
}
