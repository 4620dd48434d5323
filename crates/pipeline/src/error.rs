//! Errors of configs and runs.

use std::path::{Path, PathBuf};

use sporran_config::Diagnostic;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a config or of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// All mistakes of a config.
    #[error("{}", list(.0))]
    Config(Vec<Diagnostic>),
    /// A file of records or a store.
    #[error(transparent)]
    Kilt(#[from] sporran_kilt::Error),
    /// The files of a source.
    #[error(transparent)]
    Documents(sporran_documents::Error),
    /// An index or a search.
    #[error(transparent)]
    Retriever(sporran_retriever::Error),
    /// A reranker.
    #[error(transparent)]
    Reranker(#[from] sporran_reranker::Error),
    /// A generator.
    #[error(transparent)]
    Generator(sporran_generator::Error),
    /// A knowledge base, its rules or its embeddings.
    #[error(transparent)]
    Reasoner(Box<sporran_reasoner::Error>),
    /// A model or its training.
    #[error(transparent)]
    Transformers(#[from] sporran_checkpoint::Error),
    /// A part of knowledge-base population.
    #[error(transparent)]
    Extractor(#[from] sporran_extractor::Error),
    /// An operation of the file system failed.
    #[error("{path}: {action} failed")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operation.
        action: &'static str,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// Another process uses the run's folder.
    #[error(
        "{path}: another run holds this folder (process {process}); wait for it or choose another `name`"
    )]
    Busy {
        /// The file of the lock.
        path: PathBuf,
        /// The id of the process.
        process: String,
    },
    /// A folder that is not that of a finished run.
    #[error("{folder}: expected the folder of a finished run, with {file}; found {found}")]
    NotARun {
        /// The folder.
        folder: PathBuf,
        /// The file that it lacks.
        file: &'static str,
        /// What the folder is, or what it has.
        found: String,
    },
    /// The run or the training of a path is not finished.
    #[error("{folder}: not finished: {progress}; {hint}")]
    Unfinished {
        /// The run's folder.
        folder: PathBuf,
        /// The progress.
        progress: String,
        /// How to finish it.
        hint: String,
    },
    /// The folder has checkpoints of a training with other options or inputs.
    #[error(
        "{folder}: its checkpoints are of another training: {}; take what was there, another `name`, or remove the \
         checkpoints",
        difference(name, here, there)
    )]
    OtherTraining {
        /// The run's folder.
        folder: PathBuf,
        /// The option or input that differs.
        name: String,
        /// Its value, or its hash.
        here: String,
        /// The value of the checkpoints.
        there: String,
    },
    /// The folder has the model of a training with other options or inputs, which has no checkpoints.
    #[error(
        "{model}: the model of another training: {}; take what was there, another `name`, or remove the model",
        difference(name, here, there)
    )]
    OtherModel {
        /// The folder of the model.
        model: PathBuf,
        /// The option or input that differs.
        name: String,
        /// Its value, or its hash.
        here: String,
        /// The value of the model.
        there: String,
    },
    /// A training would replace a model that it did not make.
    #[error(
        "{model}: no training of {run} made it; name another place for the trained model, or remove this one"
    )]
    ForeignModel {
        /// The folder of the model.
        model: PathBuf,
        /// The folder of the run.
        run: PathBuf,
    },
    /// All mistakes of a submission.
    #[error("{}", .0.join("\n"))]
    Submission(Vec<String>),
}

fn list(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("\n")
}

impl From<sporran_retriever::Error> for Error {
    /// Takes an error of this crate out again, which a retriever passed through.
    fn from(error: sporran_retriever::Error) -> Self {
        match error {
            sporran_retriever::Error::Site(inner) => match inner.downcast::<Self>() {
                Ok(own) => *own,
                Err(other) => Self::Retriever(sporran_retriever::Error::Site(other)),
            },
            other => Self::Retriever(other),
        }
    }
}

impl From<sporran_documents::Error> for Error {
    /// An error of files is that of the crate `kilt`.
    fn from(error: sporran_documents::Error) -> Self {
        match error {
            sporran_documents::Error::Kilt(error) => Self::Kilt(error),
            other => Self::Documents(other),
        }
    }
}

impl From<sporran_generator::Error> for Error {
    /// Takes an error of the retriever out again, which the training of a generator passed through.
    fn from(error: sporran_generator::Error) -> Self {
        match error {
            sporran_generator::Error::Index(inner) => match inner.downcast::<sporran_retriever::Error>() {
                Ok(own) => Self::from(*own),
                Err(other) => Self::Generator(sporran_generator::Error::Index(other)),
            },
            other => Self::Generator(other),
        }
    }
}

impl From<sporran_reasoner::Error> for Error {
    /// Takes an error of this crate out again, which a reasoner passed through. An error of a model or its training is
    /// [`Self::Transformers`], as in the other stages' trainings.
    fn from(error: sporran_reasoner::Error) -> Self {
        use sporran_reasoner::Error as Reasoner;
        match error {
            Reasoner::Other(inner) => match inner.downcast::<Self>() {
                Ok(own) => *own,
                Err(other) => Self::Reasoner(Box::new(Reasoner::Other(other))),
            },
            Reasoner::Transformers(error) => Self::Transformers(error),
            kind @ Reasoner::Kind { .. } => {
                Self::Config(vec![Diagnostic::of_config("reasoner.kind", kind.to_string())])
            }
            other => Self::Reasoner(Box::new(other)),
        }
    }
}

/// Whether a path does not exist, cannot exist, or is a file instead of a folder or a folder instead of a file.
fn is_wrong_path(source: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        source.kind(),
        ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::InvalidFilename
            | ErrorKind::InvalidInput
    )
}

/// What differs between two trainings. `here` and `there` are values of an option, or hashes of an input.
fn difference(name: &str, here: &str, there: &str) -> String {
    // Values of options are TOML, where a text has quotes; so a bare hash is an input's.
    let is_hash = |value: &str| value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (is_hash(here), is_hash(there)) {
        (true, true) => format!("`{name}` has other content now than then"),
        (true, false) => format!("`{name}` is read now and was not then"),
        (false, true) => format!("`{name}` was read then and is not now"),
        (false, false) => format!("`{name}` is {here} now and was {there} then"),
    }
}

impl Error {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }

    /// Whether the call, the config or an input is wrong (exit code 2), rather than the work (exit code 1).
    pub fn is_input(&self) -> bool {
        use sporran_checkpoint::Error as Model;
        use sporran_retriever::Error as Retriever;
        match self {
            Self::Config(_)
            | Self::Submission(_)
            | Self::Busy { .. }
            | Self::NotARun { .. }
            | Self::Unfinished { .. }
            | Self::OtherTraining { .. }
            | Self::OtherModel { .. }
            | Self::ForeignModel { .. } => true,
            Self::Kilt(error) => error.is_input(),
            Self::Documents(error) => error.is_input(),
            Self::Reasoner(error) => error.is_input(),
            Self::Retriever(Retriever::Io { source, .. }) => is_wrong_path(source),
            Self::Retriever(Retriever::Kilt(error)) => error.is_input(),
            Self::Retriever(Retriever::Transformers(error))
            | Self::Reranker(sporran_reranker::Error::Transformers(error))
            | Self::Extractor(sporran_extractor::Error::Transformers(error))
            | Self::Generator(sporran_generator::Error::Transformers(error))
            | Self::Transformers(error) => match error {
                Model::Io { source, .. } => is_wrong_path(source),
                Model::Hub { .. } | Model::Tensor(_) | Model::Training { .. } | Model::Callback { .. } => {
                    false
                }
                _ => true,
            },
            Self::Retriever(Retriever::Passages { source, .. }) => {
                source.downcast_ref::<sporran_kilt::Error>().is_some_and(sporran_kilt::Error::is_input)
            }
            Self::Retriever(Retriever::Remote(error))
            | Self::Reranker(sporran_reranker::Error::Remote(error))
            | Self::Generator(sporran_generator::Error::Remote(error)) => error.is_input(),
            Self::Retriever(error) => !matches!(error, Retriever::Embeddings { .. }),
            Self::Extractor(sporran_extractor::Error::Kilt(error))
            | Self::Reranker(sporran_reranker::Error::Kilt(error)) => error.is_input(),
            Self::Reranker(_) | Self::Generator(_) | Self::Extractor(_) => true,
            Self::Io { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_index_of_a_training_is_the_retrievers() {
        let inner =
            sporran_retriever::Error::Option { option: "k", expected: "at least 1", found: "0".to_owned() };
        let error = Error::from(sporran_generator::Error::Index(Box::new(inner)));
        assert!(matches!(error, Error::Retriever(sporran_retriever::Error::Option { .. })), "{error}");
        assert!(error.is_input());
        let other = Error::from(sporran_generator::Error::Index("no file".into()));
        assert!(matches!(other, Error::Generator(_)), "{other}");
    }
}
