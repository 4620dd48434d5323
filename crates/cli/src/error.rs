//! An error as the program shows it: the chain of causes, a hint, an exit code.

use std::{error::Error as _, io::Write as _, path::PathBuf};

use anstyle::{AnsiColor, Style};
use sporran_kilt::{jsonl::plain_json, printable};

use crate::paths;

/// The cause of a failed command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A run, a config, a submission.
    #[error(transparent)]
    Pipeline(Box<sporran_pipeline::Error>),
    /// A server that cannot start or run.
    #[error(transparent)]
    Server(Box<sporran_server::Error>),
    /// Arguments that do not go together.
    #[error("{0}")]
    Usage(String),
    /// A file or folder that cannot be used.
    #[error("{0}")]
    Input(String),
    /// A command form that the program no longer has.
    #[error("`{old}` has a new form: {new}")]
    OldForm {
        /// The beginning of the old command.
        old: String,
        /// The whole new command.
        new: String,
    },
    /// Standard input or output.
    #[error("{stream}")]
    Stream {
        /// Which one.
        stream: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A file or folder.
    #[error("{}: {action} failed", path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// The failed action.
        action: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A line of standard input that cannot be used.
    #[error("standard input:{line}: {message}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What was expected and what was found.
        message: String,
    },
    /// Figures differ from the expected ones. They are printed already.
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
    /// A check found mistakes. The report is printed already.
    #[error("{0}")]
    Found(String),
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl From<sporran_pipeline::Error> for Error {
    fn from(error: sporran_pipeline::Error) -> Self {
        Self::Pipeline(Box::new(error))
    }
}

impl From<sporran_server::Error> for Error {
    fn from(error: sporran_server::Error) -> Self {
        use sporran_server::Error as Server;
        match error {
            Server::Pipeline(error) => error.into(),
            Server::Retriever(error) => error.into(),
            Server::Reranker(error) => error.into(),
            Server::Generator(error) => error.into(),
            Server::Model(error) => error.into(),
            error => Self::Server(Box::new(error)),
        }
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
            Self::Server(error) if matches!(**error, sporran_server::Error::Io { .. }) => 1,
            Self::Stream { .. } | Self::NotReproduced { .. } => 1,
            Self::Command { code, .. } => *code,
            Self::Io { source, .. } if source.kind() != std::io::ErrorKind::NotFound => 1,
            _ => 2,
        }
    }

    /// Whether standard output was closed by its reader.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.causes().any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// Whether the system found no file or folder under a path.
    fn is_missing_path(&self) -> bool {
        // Errors of the libraries have the same kind for a folder in place of a file, but no code of the system.
        self.causes()
            .any(|cause| cause.kind() == std::io::ErrorKind::NotFound && cause.raw_os_error().is_some())
    }

    /// Whether the system does not let this user write.
    pub(crate) fn is_unwritable(&self) -> bool {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        self.causes().any(|cause| matches!(cause.kind(), PermissionDenied | ReadOnlyFilesystem))
    }

    /// The causes that are errors of input or output.
    fn causes(&self) -> impl Iterator<Item = &std::io::Error> {
        let first: &dyn std::error::Error = self;
        std::iter::successors(Some(first), |&error| error.source())
            .filter_map(|error| error.downcast_ref::<std::io::Error>())
    }

    /// The error with its causes, on one line.
    pub(crate) fn text(&self) -> String {
        sporran_kilt::with_causes(self)
    }

    /// Writes the error, its causes and a hint to standard error; in colour on a terminal, unless `NO_COLOR` is set.
    pub(crate) fn print(&self) {
        let label = |colour: AnsiColor, text: &str| {
            let style = Style::new().bold().fg_color(Some(colour.into()));
            format!("{style}{text}{style:#}")
        };
        let mut text = format!("{} {}\n", label(AnsiColor::Red, "error:"), printable(&self.to_string()));
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(&format!("  because: {}\n", printable(&plain_json(&error.to_string()))));
            cause = error.source();
        }
        if let Some(hint) = self.hint() {
            text.push_str(&format!("  {} {hint}\n", label(AnsiColor::Cyan, "hint:")));
        }
        // Where standard error is closed, the exit code still says that the command failed.
        let _ = anstream::stderr().write_all(text.as_bytes());
    }

    /// Advice on how to correct the call; `None` if the call was right and the work failed.
    fn hint(&self) -> Option<String> {
        use sporran_pipeline::Error as Pipeline;
        let error = match self {
            Self::Usage(_) => return Some("for more information, try '--help'".to_owned()),
            Self::Pipeline(error) => error.as_ref(),
            _ => return None,
        };
        match error {
            // The configs' checks begin the messages for missing paths so.
            Pipeline::Config(mistakes)
                if mistakes.iter().any(|mistake| mistake.message.starts_with("no ")) =>
            {
                self.relative_to()
            }
            Pipeline::Kilt(sporran_kilt::Error::MissingPrediction { .. }) => Some(
                "for KILT's tasks, `sporran submit check` lists all ids that are missing or unknown"
                    .to_owned(),
            ),
            Pipeline::Kilt(sporran_kilt::Error::Compressed { .. }) => {
                Some("the file may be an incomplete download; fetch it again".to_owned())
            }
            _ if self.is_missing_path() => self.relative_to(),
            _ => None,
        }
    }

    /// The note on relative paths, unless the error has it already.
    fn relative_to(&self) -> Option<String> {
        Some(paths::relative_to()).filter(|note| !self.text().contains(note.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wrong_calls_and_missing_paths_get_a_hint() {
        let usage = Error::Usage("--name: expected a name".into());
        assert!(usage.hint().unwrap().contains("--help"));
        let failed = |source: std::io::Error| {
            Error::from(sporran_pipeline::Error::Io { path: "runs/a".into(), action: "write", source })
        };
        assert_eq!(failed(std::io::ErrorKind::StorageFull.into()).hint(), None);
        let missing = std::io::Error::from_raw_os_error(2);
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
        assert!(failed(missing).hint().unwrap().contains("you are in"));
        assert_eq!(Error::Input("no file a".into()).hint(), None);
        // A message that has the note already does not get it again.
        let mistake = |message: String| {
            let found =
                sporran_pipeline::Diagnostic { origin: "c".into(), line: 1, key: "model".into(), message };
            Error::from(sporran_pipeline::Error::Config(vec![found])).hint()
        };
        assert!(mistake("no file a".into()).is_some());
        assert_eq!(mistake(format!("no file a; {}", paths::relative_to())), None);
    }
}
