//! The errors of starting and running a server.

use std::{io, path::PathBuf};

/// The result of starting or running a server.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of starting or running a server. Requests fail with a `Failure` instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A config or its parts.
    #[error(transparent)]
    Pipeline(#[from] sporran_pipeline::Error),
    /// An encoder.
    #[error(transparent)]
    Retriever(#[from] sporran_retriever::Error),
    /// A reranker.
    #[error(transparent)]
    Reranker(#[from] sporran_reranker::Error),
    /// A generator.
    #[error(transparent)]
    Generator(#[from] sporran_generator::Error),
    /// A model's folder.
    #[error(transparent)]
    Model(#[from] sporran_checkpoint::Error),
    /// A config of a workflow that is not served.
    #[error(
        "{path}: expected a config of a served workflow, found `workflow = \"{workflow}\"`; served are {served}"
    )]
    Workflow {
        /// The config.
        path: PathBuf,
        /// Its workflow.
        workflow: String,
        /// The workflows that are served.
        served: String,
    },
    /// A config that follows itself.
    #[error("{path}: expected other configs in `then`; it follows itself, directly or by way of others")]
    Circle {
        /// The config.
        path: PathBuf,
    },
    /// Two mounts with one name.
    #[error(
        "two mounts have the name `{name}`; set another `name` in one of the configs, or rename the folder"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A mount with the name of another path.
    #[error(
        "a mount has the name `{name}`, and `/v1/{name}` has other paths; set another `name` in its config, or rename the folder"
    )]
    Reserved {
        /// The name.
        name: &'static str,
    },
    /// Nothing to serve.
    #[error(
        "nothing to serve: expected a config, a folder of documents, `--model`, `--llm`, `--embed`, `--rerank`, `--classify`, `--run` or `--kb`"
    )]
    Nothing,
    /// A file that holds a key.
    #[error("{path}: expected an API key of at least {least} characters on the first line, found {found}")]
    Key {
        /// The file.
        path: PathBuf,
        /// The length of the shortest key.
        least: usize,
        /// The length of the first line.
        found: usize,
    },
    /// A file whose key has characters that a header cannot carry.
    #[error("{path}: expected an API key of visible ASCII characters on line 1, found others")]
    KeyText {
        /// The file.
        path: PathBuf,
    },
    /// A file or a socket.
    #[error("{what} failed")]
    Io {
        /// The step, with the file or the address.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}
