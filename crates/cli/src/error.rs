//! An error as the program shows it: the chain of causes, a hint, an exit code.

use std::{error::Error as _, path::PathBuf};

/// What made a command fail.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A run, a config, a submission.
    #[error(transparent)]
    Pipeline(Box<sporran_pipeline::Error>),
    /// Arguments that do not go together.
    #[error("{0}")]
    Usage(String),
    /// Standard input or output.
    #[error("{stream}")]
    Stream {
        /// Which one.
        stream: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file or folder.
    #[error("{}: {action} failed", path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A line of standard input that cannot be used.
    #[error("standard input:{line}: {message}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What was expected, and what came.
        message: String,
    },
    /// Figures that did not come again; they have been printed.
    #[error("{count} of {of} figures were not reproduced")]
    NotReproduced {
        /// How many.
        count: usize,
        /// Of how many.
        of: usize,
    },
    /// A command of this program that another one ran.
    #[error("`{command}` failed")]
    Command {
        /// The command.
        command: String,
        /// Its exit code.
        code: u8,
    },
    /// What was checked is wrong; the report has been printed.
    #[error("{0}")]
    Found(String),
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl From<sporran_pipeline::Error> for Error {
    fn from(error: sporran_pipeline::Error) -> Self {
        Self::Pipeline(Box::new(error))
    }
}

impl From<sporran_kilt::Error> for Error {
    fn from(error: sporran_kilt::Error) -> Self {
        sporran_pipeline::Error::from(error).into()
    }
}

impl From<sporran_checkpoint::Error> for Error {
    fn from(error: sporran_checkpoint::Error) -> Self {
        sporran_pipeline::Error::from(error).into()
    }
}

impl From<sporran_retriever::Error> for Error {
    fn from(error: sporran_retriever::Error) -> Self {
        sporran_pipeline::Error::from(error).into()
    }
}

impl From<sporran_reranker::Error> for Error {
    fn from(error: sporran_reranker::Error) -> Self {
        sporran_pipeline::Error::from(error).into()
    }
}

impl From<sporran_generator::Error> for Error {
    fn from(error: sporran_generator::Error) -> Self {
        sporran_pipeline::Error::from(error).into()
    }
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, action, source }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Pipeline(error) if !error.is_input() => 1,
            Self::Stream { .. } | Self::NotReproduced { .. } => 1,
            Self::Command { code, .. } => *code,
            Self::Io { source, .. } if source.kind() != std::io::ErrorKind::NotFound => 1,
            _ => 2,
        }
    }

    /// Whether standard output was closed by its reader.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        let mut cause: Option<&dyn std::error::Error> = Some(self);
        while let Some(error) = cause {
            if let Some(io) = error.downcast_ref::<std::io::Error>()
                && io.kind() == std::io::ErrorKind::BrokenPipe
            {
                return true;
            }
            cause = error.source();
        }
        false
    }

    /// Writes the error, its causes and a hint to standard error.
    pub(crate) fn print(&self) {
        eprintln!("error: {self}");
        let mut cause = self.source();
        while let Some(error) = cause {
            eprintln!("  because: {error}");
            cause = error.source();
        }
        if let Some(hint) = self.hint() {
            eprintln!("  hint: {hint}");
        }
    }

    fn hint(&self) -> Option<&'static str> {
        use sporran_pipeline::Error as Pipeline;
        let Self::Pipeline(error) = self else { return None };
        match error.as_ref() {
            Pipeline::Config(_) => Some(
                "`sporran config show CONFIG` prints a config with all its defaults; paths are relative to where you run the program",
            ),
            Pipeline::Kilt(sporran_kilt::Error::MissingPrediction { .. }) => {
                Some("`sporran submit check` lists all ids that are missing or unknown")
            }
            Pipeline::Kilt(sporran_kilt::Error::Compressed { .. }) => {
                Some("the file may have been cut off by a broken download; fetch it again")
            }
            _ => None,
        }
    }
}
