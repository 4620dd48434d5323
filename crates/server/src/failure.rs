//! The failure of a request, and its form in each API.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Json, Response},
};
use serde_json::{Value, json};
use sporran_kilt::with_causes;

/// Why a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The body is no JSON.
    Syntax,
    /// A value is missing or wrong.
    Invalid,
    /// The body, a text or the batch is too large.
    TooLarge,
    /// The key is missing or wrong.
    Unauthorized,
    /// The host of the request is not one of this server.
    Forbidden,
    /// There is no such path, mount, model or document.
    NotFound,
    /// The path does not take this method.
    Method,
    /// The body is not `application/json`.
    MediaType,
    /// Too much waits already.
    Overloaded,
    /// The answer took too long.
    TimedOut,
    /// The server is about to end.
    Stopping,
    /// What is asked for is being replaced.
    Changing,
    /// The endpoint of a model failed or refused.
    Upstream,
    /// A model or an index failed.
    Internal,
}

/// The failure of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Why.
    pub(crate) cause: Cause,
    /// What was expected and what came.
    pub(crate) message: String,
    /// The field of the request.
    pub(crate) field: Option<String>,
    /// The seconds after which another try may succeed.
    pub(crate) retry_after: Option<u64>,
    /// What clients need not know: an error with its sources, for the log.
    pub(crate) detail: Option<String>,
}

/// The seconds after which an endpoint that failed is worth another try.
const UPSTREAM_PAUSE: u64 = 5;

/// Whether an error is that of a model's endpoint.
fn is_of_endpoint(error: &(dyn std::error::Error + 'static)) -> bool {
    use sporran_generator::Error as Generator;
    use sporran_pipeline::Error as Pipeline;
    let of_generator = |error: &Generator| matches!(error, Generator::Remote(_));
    let of_pipeline = |error: &Pipeline| matches!(error, Pipeline::Generator(error) if of_generator(error));
    error.downcast_ref::<Generator>().is_some_and(of_generator)
        || error.downcast_ref::<Pipeline>().is_some_and(of_pipeline)
}

impl Failure {
    /// A failure.
    pub(crate) fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into(), field: None, retry_after: None, detail: None }
    }

    /// A wrong value of a field.
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self { field: Some(field.to_owned()), ..Self::new(Cause::Invalid, message) }
    }

    /// A model or an index that failed, or a model's endpoint. The error with its sources is for the log; clients do not need the paths in it.
    pub(crate) fn internal(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let error = error.into();
        let detail = with_causes(&*error);
        tracing::error!("a request failed: {detail}");
        if is_of_endpoint(&*error) {
            let message = "the endpoint of the model failed or refused; the server's log has the cause";
            let failure = Self::new(Cause::Upstream, message);
            return Self { detail: Some(detail), retry_after: Some(UPSTREAM_PAUSE), ..failure };
        }
        let message = "the server could not compute the answer; its log has the cause";
        Self { detail: Some(detail), ..Self::new(Cause::Internal, message) }
    }

    /// Something that does not exist, with the names of what does.
    pub(crate) fn not_found<'a>(what: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let message = match known.is_empty() {
            true => format!("there is no {what} `{name}`"),
            false => format!("there is no {what} `{name}`; there are `{}`", known.join("`, `")),
        };
        Self::new(Cause::NotFound, message)
    }
}

impl Cause {
    fn status(self) -> StatusCode {
        match self {
            Self::Syntax | Self::Invalid => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Overloaded => StatusCode::TOO_MANY_REQUESTS,
            Self::TimedOut | Self::Stopping | Self::Changing | Self::Upstream => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The word of text-embeddings-inference.
    fn tei(self) -> &'static str {
        match self {
            Self::Overloaded => "Overloaded",
            Self::Internal | Self::TimedOut | Self::Upstream => "Backend",
            Self::Stopping | Self::Changing => "Unhealthy",
            _ => "Validation",
        }
    }

    /// The words of OpenAI: the type and the code.
    fn openai(self) -> (&'static str, &'static str) {
        match self {
            Self::Unauthorized => ("invalid_request_error", "invalid_api_key"),
            Self::Overloaded => ("rate_limit_error", "rate_limit_exceeded"),
            Self::TimedOut | Self::Stopping | Self::Changing | Self::Upstream | Self::Internal => {
                ("server_error", "server_error")
            }
            Self::NotFound => ("invalid_request_error", "not_found"),
            Self::TooLarge => ("invalid_request_error", "too_large"),
            _ => ("invalid_request_error", "invalid_value"),
        }
    }
}

/// The form of a failure in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `{"error"}`, as Pyserini; our own endpoints too.
    Plain,
    /// `{"error", "error_type"}`.
    Tei,
    /// `{"error": {"message", "type", "param", "code"}}`.
    OpenAi,
    /// `{"detail"}`.
    Jina,
    /// `{"message"}`.
    Cohere,
}

impl Form {
    /// The form of the API that a path belongs to.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "/" | "/embed" | "/embed_all" | "/rerank" | "/predict" | "/similarity" | "/tokenize"
            | "/info" => Self::Tei,
            "/v1/models" | "/v1/embeddings" | "/v1/completions" | "/v1/chat/completions" => Self::OpenAi,
            "/v1/rerank" => Self::Jina,
            "/v2/rerank" => Self::Cohere,
            _ if path.starts_with("/v1/models/") => Self::OpenAi,
            _ => Self::Plain,
        }
    }

    /// The body of the response to a request that fails.
    pub(crate) fn body(self, failure: &Failure) -> Value {
        let Failure { cause, message, field, .. } = failure;
        match self {
            Self::Plain => json!({ "error": message }),
            Self::Tei => json!({ "error": message, "error_type": cause.tei() }),
            Self::OpenAi => {
                let (kind, code) = cause.openai();
                json!({ "error": { "message": message, "type": kind, "param": field, "code": code } })
            }
            Self::Jina => json!({ "detail": message }),
            Self::Cohere => json!({ "message": message }),
        }
    }

    /// The response to a request that fails.
    pub(crate) fn response(self, failure: &Failure) -> Response {
        let Failure { cause, retry_after, .. } = failure;
        let body = self.body(failure);
        let status = match (self, cause) {
            // text-embeddings-inference refuses values so, and has a status of its own for a model that fails.
            (Self::Tei, Cause::Invalid) => StatusCode::UNPROCESSABLE_ENTITY,
            (Self::Tei, Cause::Internal) => StatusCode::FAILED_DEPENDENCY,
            (_, cause) => cause.status(),
        };
        let mut response = (status, Json(body)).into_response();
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(*seconds));
        }
        if *cause == Cause::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl IntoResponse for Failure {
    /// The failure itself goes along, for the layer that knows the path and so the form.
    fn into_response(self) -> Response {
        let mut response = Form::Plain.response(&self);
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_api_has_its_form_and_status() {
        let failure = Failure::invalid("inputs", "expected a text");
        let status = |path: &str, failure: &Failure| Form::of(path).response(failure).status().as_u16();
        assert_eq!((status("/embed", &failure), status("/v1/embeddings", &failure)), (422, 400));
        let failed = Failure::new(Cause::Internal, "x");
        assert_eq!((status("/rerank", &failed), status("/v1/answer", &failed)), (424, 500));
        let forms = ["/", "/v1/models/a", "/v1/rerank", "/v2/rerank", "/v1/minikilt/search"].map(Form::of);
        assert_eq!(forms, [Form::Tei, Form::OpenAi, Form::Jina, Form::Cohere, Form::Plain]);
    }

    #[test]
    fn an_overload_says_when_to_try_again() {
        let failure = Failure { retry_after: Some(7), ..Failure::new(Cause::Overloaded, "busy") };
        let response = Form::OpenAi.response(&failure);
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (429, &HeaderValue::from(7u64))
        );
    }

    #[test]
    fn the_log_has_the_sources_of_an_error_and_the_client_has_not() {
        let error =
            crate::Error::Io { what: "reading x".into(), source: std::io::Error::other(std::fmt::Error) };
        let cause = std::fmt::Error.to_string();
        let failure = Failure::internal(error);
        let detail = failure.detail.unwrap();
        assert!(detail.starts_with("reading x failed; because: ") && detail.ends_with(&cause), "{detail}");
        assert!(!failure.message.contains("reading x"));
        assert_eq!(Failure::internal("a text").detail.as_deref(), Some("a text"));
    }

    #[test]
    fn what_is_missing_is_named_with_what_exists() {
        let failure = Failure::not_found("index", "x", ["a", "b"]);
        assert_eq!(failure.message, "there is no index `x`; there are `a`, `b`");
    }
}
