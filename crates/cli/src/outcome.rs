//! The result of a verb, and the one place that prints it.

use std::{
    fmt::{self, Display},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;
use sporran_kilt::escaped_json;
use sporran_pipeline::Event;

use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    progress::Progress,
};

/// The result of a verb: a summary for people, JSON for programs, and the models that were written.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    summary: String,
    /// Lines of JSON, each one value.
    json: Vec<String>,
    models: Vec<PathBuf>,
    is_aside: bool,
    failure: Option<Error>,
}

impl Outcome {
    /// A summary, and the value that `--json` prints instead.
    pub(crate) fn new(summary: impl Display, json: &impl Serialize) -> Result<Self> {
        Self::list(summary, [json])
    }

    /// A part of a result that exists as text only.
    pub(crate) fn text(summary: impl Display) -> Self {
        Self { summary: summary.to_string(), ..Self::default() }
    }

    /// A result with a text form and a JSON form.
    pub(crate) fn of<T: Display + Serialize>(result: &T) -> Result<Self> {
        Self::new(result, result)
    }

    /// A summary, and several values that `--json` prints instead, one per line.
    pub(crate) fn list<T: Serialize>(
        summary: impl Display,
        values: impl IntoIterator<Item = T>,
    ) -> Result<Self> {
        let line = |value: T| serde_json::to_string(&value).map_err(|error| stdout_failed(error.into()));
        let json = values.into_iter().map(line).collect::<Result<_>>()?;
        Ok(Self { summary: summary.to_string(), json, ..Self::default() })
    }

    /// Names a model that the verb wrote; the summary ends with it.
    pub(crate) fn with_model(mut self, model: impl AsRef<Path>) -> Self {
        self.models.push(model.as_ref().to_owned());
        self
    }

    /// Adds a line to the summary.
    pub(crate) fn with_line(mut self, line: impl Display) -> Self {
        if !self.summary.is_empty() && !self.summary.ends_with('\n') {
            self.summary.push('\n');
        }
        self.summary.push_str(&line.to_string());
        self
    }

    /// Prints to standard error, because standard output can hold the data. `--quiet` hides the summary then.
    pub(crate) fn aside(mut self) -> Self {
        self.is_aside = true;
        self
    }

    /// Makes the program fail after the outcome is printed.
    pub(crate) fn failing(mut self, failure: Option<Error>) -> Self {
        self.failure = failure;
        self
    }
}

impl From<sporran_pipeline::Outcome> for Outcome {
    fn from(outcome: sporran_pipeline::Outcome) -> Self {
        let sporran_pipeline::Outcome { summary, json, models, .. } = outcome;
        Self { summary, json: vec![json], models, ..Self::default() }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = self.summary.strip_suffix('\n').unwrap_or(&self.summary);
        f.write_str(summary)?;
        for (index, model) in self.models.iter().enumerate() {
            let separator = if index == 0 && summary.is_empty() { "" } else { "\n" };
            write!(f, "{separator}model: {}", model.display())?;
        }
        Ok(())
    }
}

/// How a verb shows its progress and its results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// Show errors only.
    pub(crate) quiet: bool,
    /// Print JSON instead of summaries.
    pub(crate) json: bool,
    /// How often `--verbose` was given.
    pub(crate) verbose: u8,
}

impl Context {
    /// Prints an outcome. Returns the outcome's failure, if it has one.
    pub(crate) fn print(&self, outcome: Outcome) -> Result<()> {
        let text = if self.json { escaped_json(&outcome.json.join("\n")) } else { outcome.to_string() };
        let end = if text.is_empty() { "" } else { "\n" };
        if !outcome.is_aside {
            stdout(&format!("{text}{end}"))?;
        } else if self.json || !self.quiet {
            stderr(&format!("{text}{end}"));
        }
        outcome.failure.map_or(Ok(()), Err)
    }

    /// Prints one line of a stream: a value as JSON, or its text.
    pub(crate) fn row<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
        let mut line = if self.json {
            escaped_json(&serde_json::to_string(value).map_err(|error| stdout_failed(error.into()))?)
        } else {
            text(value)
        };
        line.push('\n');
        stdout(&line)
    }

    /// Draws the progress of one piece of work.
    pub(crate) fn observer(&self) -> impl FnMut(Event) + use<> {
        let mut progress = Progress::new(self.quiet);
        move |event| {
            if let Event::Folder { path } = &event {
                interrupt::keep(Kept::Folder(path.clone()));
            }
            interrupt::follow(&event);
            progress.event(event);
        }
    }
}

/// Writes text to standard error. Where it is closed or full, the work goes on without it.
pub(crate) fn stderr(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

fn stdout(text: &str) -> Result<()> {
    io::stdout().write_all(text.as_bytes()).map_err(stdout_failed)
}

fn stdout_failed(source: io::Error) -> Error {
    Error::Stream { stream: "standard output", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_ends_with_the_models() {
        let outcome = Outcome::new("5 steps\n", &[1.5f32]).unwrap();
        let outcome = outcome.with_line("F1 0.5").with_model("runs/a").with_model("runs/b");
        assert_eq!(outcome.to_string(), "5 steps\nF1 0.5\nmodel: runs/a\nmodel: runs/b");
        assert_eq!(outcome.json, ["[1.5]"]);
        let outcome = Outcome::new("", &1).unwrap().with_model("runs/a");
        assert_eq!(outcome.to_string(), "model: runs/a");
    }

    #[test]
    fn floats_keep_the_digits_of_their_type() {
        assert_eq!(Outcome::new("", &0.1f32).unwrap().json, ["0.1"]);
    }
}
