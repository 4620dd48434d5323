//! Errors of endpoints.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of an endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option with a wrong value.
    #[error("{option}: expected {expected}, found {found}")]
    Option {
        /// The option's name in a config.
        option: &'static str,
        /// The expected value.
        expected: &'static str,
        /// The value that was found, or what it is.
        found: String,
    },
    /// The environment variable of a key is missing or has no usable key.
    #[error("api-key-env: expected a key in the environment variable {variable}, found {found}")]
    Variable {
        /// The name of the variable.
        variable: String,
        /// What it has instead.
        found: &'static str,
    },
    /// There was no usable response, although the request was repeated where that can help.
    #[error("{url}: no usable response after {attempts} {}: {problem}", if *.attempts == 1 { "attempt" } else { "attempts" })]
    Failed {
        /// The address.
        url: String,
        /// The number of requests.
        attempts: usize,
        /// The problem of the last one.
        problem: String,
    },
    /// The endpoint refused the request: a wrong key, an unknown model, an input that is too long.
    #[error("{url}: the endpoint refuses the request with status {status}: {problem}")]
    Refused {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The endpoint's message.
        problem: String,
    },
    /// A response that does not answer the request.
    #[error("{url}: {problem}")]
    Response {
        /// The address.
        url: String,
        /// What was expected and what was found.
        problem: String,
    },
    /// Another request failed, so this one was given up.
    #[error("{url}: given up, because another request failed")]
    GivenUp {
        /// The address.
        url: String,
    },
    /// A file of the cache cannot be written.
    #[error(transparent)]
    Cache(#[from] sporran_kilt::Error),
}

impl Error {
    /// Whether the config, the key or a request is wrong, rather than the endpoint or the network.
    #[must_use]
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Option { .. } | Self::Variable { .. } | Self::Refused { .. })
    }
}
