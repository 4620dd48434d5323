//! Reading a config file of any workflow.

use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use sporran_config::{Diagnostic, Document, Text, WORKFLOW, schema};
use sporran_kilt::jsonl;

use crate::{Error, Result};

/// The options of a workflow's config.
pub trait Config: Serialize + JsonSchema + Sized {
    /// The possible values of `workflow`, the first key.
    const WORKFLOWS: &'static [&'static str];

    /// The workflow of these options.
    fn workflow(&self) -> &'static str {
        Self::WORKFLOWS[0]
    }

    /// The schema of the config: its keys without `workflow`, their meanings, ranges and defaults.
    fn schema() -> Schema {
        schema::of::<Self>()
    }

    /// Takes the options out of a document and reports its mistakes. Does not open files of the options.
    fn read(document: &mut Document<'_>) -> Option<Self>;

    /// Reports wrong values and missing files.
    fn check(&self, document: &mut Document<'_>);

    /// Reads and checks a config file with `key=value` overrides.
    ///
    /// # Errors
    /// [`Error::Config`] with every mistake; [`Error::Kilt`] if the file cannot be read.
    fn load(path: &Path, overrides: &[String]) -> Result<Self> {
        load(path, overrides, Self::check)
    }

    /// Reads a config file with `key=value` overrides, without checks of values and files.
    ///
    /// # Errors
    /// As [`Config::load`].
    fn parse(path: &Path, overrides: &[String]) -> Result<Self> {
        without_mistakes(read(path, overrides, |_, _| {})?)
    }

    /// All mistakes in a config file with `key=value` overrides.
    ///
    /// # Errors
    /// [`Error::Kilt`] if the file cannot be read.
    fn mistakes(path: &Path, overrides: &[String]) -> Result<Vec<Diagnostic>> {
        Ok(inspect(path, overrides, Self::check)?.1)
    }
}

/// The default parent folder of runs.
pub(crate) fn runs() -> PathBuf {
    "runs".into()
}

/// Options as TOML that loads as the same options, with every default.
///
/// # Errors
/// [`Error::Io`] for a value that TOML cannot represent, such as a number of more than 64 bits.
pub(crate) fn to_toml<T: Config>(options: &T) -> Result<String> {
    let mut whole = toml::Table::new();
    whole.insert(WORKFLOW.to_owned(), options.workflow().into());
    // A `Table` writes plain values before tables, independent of the order of fields.
    whole.extend(toml::Table::try_from(options).map_err(unwritable)?);
    toml::to_string_pretty(&whole).map_err(unwritable)
}

/// The error for a value that TOML cannot represent.
pub(crate) fn unwritable(error: toml::ser::Error) -> Error {
    Error::io(Path::new("config.toml"), "write")(std::io::Error::other(error))
}

/// Reads a config with its overrides. Reports numbers outside of their ranges. `check` reports other mistakes in values.
///
/// # Errors
/// [`Error::Kilt`] if the file cannot be read.
pub(crate) fn inspect<T: Config>(
    path: &Path,
    overrides: &[String],
    check: impl FnOnce(&T, &mut Document<'_>),
) -> Result<(Option<T>, Vec<Diagnostic>)> {
    read(path, overrides, |options: Option<&T>, document| {
        document.check_ranges(&T::schema());
        if let Some(options) = options {
            check(options, document);
        }
    })
}

/// Reads a config with its overrides. `check` gets the options, if they can be read, and the whole document.
fn read<T: Config>(
    path: &Path,
    overrides: &[String],
    check: impl FnOnce(Option<&T>, &mut Document<'_>),
) -> Result<(Option<T>, Vec<Diagnostic>)> {
    let text = Text::new(path, jsonl::read_to_string(path)?, overrides);
    let mut document = Document::parse(&text);
    let mut options = None;
    if document.take_workflow(T::WORKFLOWS) {
        let written = document.clone();
        options = T::read(&mut document);
        // `T::read` takes stages out of the document. Checks need the whole document for the lines of keys.
        document.restore(written);
        document.suggest_elsewhere(&T::schema());
        check(options.as_ref(), &mut document);
    }
    Ok((options, document.into_diagnostics()))
}

/// Reads a config and fails if it has mistakes.
///
/// # Errors
/// [`Error::Config`] with every mistake; [`Error::Kilt`] if the file cannot be read.
pub(crate) fn load<T: Config>(
    path: &Path,
    overrides: &[String],
    check: impl FnOnce(&T, &mut Document<'_>),
) -> Result<T> {
    without_mistakes(inspect(path, overrides, check)?)
}

fn without_mistakes<T>((options, diagnostics): (Option<T>, Vec<Diagnostic>)) -> Result<T> {
    options.filter(|_| diagnostics.is_empty()).ok_or(Error::Config(diagnostics))
}

/// The mistakes of loading a config with this text and these overrides, one line each.
#[cfg(test)]
pub(crate) fn mistakes<T>(
    text: &str,
    overrides: &[&str],
    load: impl FnOnce(&Path, &[String]) -> Result<T>,
) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.toml");
    std::fs::write(&path, text).unwrap();
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    match load(&path, &overrides) {
        Ok(_) => String::new(),
        Err(Error::Config(found)) => found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        Err(other) => panic!("{other}"),
    }
}
