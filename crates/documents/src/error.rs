//! The errors of this crate.

use std::path::PathBuf;

use sporran_kilt::{counted, printable_line};

use crate::Summary;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors that end the reading of a whole source. A file that cannot be read alone is a [`Problem`](crate::Problem).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of files and folders.
    #[error(transparent)]
    Kilt(#[from] sporran_kilt::Error),
    /// A pattern of `include` or `exclude` that is no glob.
    #[error("`{key}`: expected a glob, found `{pattern}`: {message}")]
    Pattern {
        /// The option.
        key: &'static str,
        /// The pattern.
        pattern: String,
        /// The mistake.
        message: String,
    },
    /// No file of the source could be read.
    #[error("no page could be read from {}", unread(.paths, .summary))]
    Nothing {
        /// The paths of the source.
        paths: Vec<PathBuf>,
        /// The problems of all files.
        summary: Box<Summary>,
    },
    /// A source with `strict = true` has files that cannot be read whole.
    #[error("`strict` is set, and {} could not be read whole{}", counted(.summary.incomplete() as u64, "file"), told(.summary.all_lines(), .summary))]
    Strict {
        /// The problems of all files.
        summary: Box<Summary>,
    },
}

fn join(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| printable_line(&path.display().to_string())).collect::<Vec<_>>().join(", ")
}

/// The paths without a page, and why. A single file with a single problem is named once.
fn unread(paths: &[PathBuf], summary: &Summary) -> String {
    match (paths, &summary.problems[..]) {
        ([path], [problem]) if path.to_string_lossy() == problem.file => problem.to_string(),
        _ => format!("{}{}", join(paths), problems(summary)),
    }
}

/// The first problems, as the end of a message.
fn problems(summary: &Summary) -> String {
    told(summary.lines(), summary)
}

/// Lines of problems, as the end of a message.
fn told(mut lines: Vec<String>, summary: &Summary) -> String {
    lines.extend(summary.left_out());
    match &lines[..] {
        [] => ": no files were found".to_owned(),
        [only] if summary.problems.is_empty() => format!(": no other files were found; {only}"),
        lines => format!(":\n  {}", lines.join("\n  ")),
    }
}

impl Error {
    /// Whether the input is wrong: exit code 2 instead of 1.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Kilt(error) => error.is_input(),
            Self::Pattern { .. } | Self::Nothing { .. } | Self::Strict { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Problem, Severity};

    #[test]
    fn a_strict_source_names_every_file() {
        let problem = |at: usize| Problem {
            file: format!("f{at}"),
            line: None,
            severity: Severity::Unread,
            message: "m".into(),
        };
        let summary = Box::new(Summary { problems: (0..25).map(problem).collect(), ..Summary::default() });
        let text = Error::Strict { summary: summary.clone() }.to_string();
        assert!(text.contains("25 files") && text.ends_with("\n  f24: m"), "{text}");
        let text = Error::Nothing { paths: vec!["notes".into()], summary }.to_string();
        assert!(text.ends_with("\n  and 5 more"), "{text}");
    }

    #[test]
    fn a_single_file_is_named_once() {
        let problem = |file: &str| Problem {
            file: file.into(),
            line: None,
            severity: Severity::Unread,
            message: "expected text, found a binary file".into(),
        };
        let of = |path: &str, files: &[&str], written: &[&str]| {
            let problems = files.iter().map(|file| problem(file)).collect();
            let written = written.iter().map(|&folder| folder.to_owned()).collect();
            let summary = Box::new(Summary { problems, written, ..Summary::default() });
            Error::Nothing { paths: vec![path.into()], summary }.to_string()
        };
        assert_eq!(
            of("a.bin", &["a.bin"], &[]),
            "no page could be read from a.bin: expected text, found a binary file"
        );
        assert_eq!(
            of("notes", &["notes/a.bin"], &[]),
            "no page could be read from notes:\n  notes/a.bin: expected text, found a binary file"
        );
        assert_eq!(of("notes", &[], &[]), "no page could be read from notes: no files were found");
        assert_eq!(
            of("runs", &[], &["runs/a"]),
            "no page could be read from runs: no other files were found; left out 1 folder that Sporran wrote: runs/a"
        );
    }
}
