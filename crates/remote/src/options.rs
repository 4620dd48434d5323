//! How requests are sent to an endpoint, and what is kept of them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;

use crate::{base_url::BaseUrl, secret::check_variable};

/// `[generator.requests]` and the like: how requests are sent to an endpoint, and what is kept of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RequestOptions {
    /// Requests that wait for a response at the same time, at most.
    #[schemars(range(min = 1, max = 1024), extend("x-unit" = "requests"))]
    pub concurrency: usize,
    /// How often a failed request is repeated, at most: after a broken connection, a timeout, the statuses 408, 425 and 5xx, and
    /// a response that is no JSON. Rate limits do not count; see `rate-limit-wait`.
    #[schemars(range(max = 100))]
    pub retries: usize,
    /// The wait before the first repetition. It doubles with each further one. Half of it is random, by the seed.
    #[schemars(range(min = 0, max = 3600), extend("x-unit" = "seconds"))]
    pub first_wait: f64,
    /// The longest wait before a repetition. An endpoint that asks for a longer one (`Retry-After`) ends the run, which can be
    /// continued later.
    #[schemars(range(min = 0, max = 86400), extend("x-unit" = "seconds"))]
    pub longest_wait: f64,
    /// The longest time that a request waits in all for rate limits: for the status 429, and where an endpoint asks for a wait.
    /// Then the run ends, and can be continued later.
    #[schemars(range(min = 0, max = 86400), extend("x-unit" = "seconds"))]
    pub rate_limit_wait: f64,
    /// The longest time for a response; for a stream, between two of its parts.
    #[schemars(range(min = 0.001, max = 86400), extend("x-unit" = "seconds"))]
    pub timeout: f64,
    /// The longest time for a connection.
    #[schemars(range(min = 0.001, max = 3600), extend("x-unit" = "seconds"))]
    pub connect_timeout: f64,
    /// Requests a minute, at most; no limit by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub requests_per_minute: Option<f64>,
    /// Tokens a minute, input and output, as the endpoint counts them, on average at most; no limit by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0, "x-unit" = "tokens"))]
    pub tokens_per_minute: Option<f64>,
    /// Whether responses are stored on disk by the hash of their request, so that no request is sent twice.
    pub use_cache: bool,
    /// The folder of the stored responses.
    pub cache: PathBuf,
    /// The price of a million input tokens, for the cost in the manifest, in any currency.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub input_price: Option<f64>,
    /// The price of a million output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub output_price: Option<f64>,
}

impl Default for RequestOptions {
    fn default() -> Self {
        Self {
            concurrency: 4,
            retries: 5,
            first_wait: 1.0,
            longest_wait: 120.0,
            rate_limit_wait: 3600.0,
            timeout: 300.0,
            connect_timeout: 10.0,
            requests_per_minute: None,
            tokens_per_minute: None,
            use_cache: true,
            cache: "responses".into(),
            input_price: None,
            output_price: None,
        }
    }
}

/// Reports an address, a model or a key's variable that cannot be used. `key` is the path of the table. Neither an address
/// with a password nor a key in place of a variable's name is repeated in a message.
pub fn check_endpoint(
    key: &str,
    (base_url, model, api_key_env): (&str, &str, Option<&str>),
    document: &mut Document<'_>,
) {
    if let Err((expected, found)) = BaseUrl::parse(base_url) {
        document.report_key(&format!("{key}.base-url"), format!("expected {expected}, found {found}"));
    }
    if model.trim().is_empty() {
        let message = "expected the name of a model at the endpoint, found none";
        document.report_key(&format!("{key}.model"), message);
    }
    if let Some(Err((expected, found))) = api_key_env.map(check_variable) {
        document.report_key(&format!("{key}.api-key-env"), format!("expected {expected}, found {found}"));
    }
}
