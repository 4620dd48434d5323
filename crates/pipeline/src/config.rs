//! Reading a config file of any workflow.

use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use sporran_config::{Diagnostic, Document, Text, WORKFLOW, schema};
use sporran_kilt::jsonl;

use crate::{Error, Result};

/// The options of a workflow's config.
pub trait Config: Serialize + JsonSchema + Sized {
    /// What `workflow`, the first key, can be in such a config.
    const WORKFLOWS: &'static [&'static str];

    /// The workflow of these options.
    fn workflow(&self) -> &'static str {
        Self::WORKFLOWS[0]
    }

    /// The schema of the config: its keys without `workflow`, their meanings, ranges and defaults.
    fn schema() -> Schema {
        schema::of::<Self>()
    }

    /// Takes the options out of a document and reports the mistakes there. Files that it names are not opened.
    fn read(document: &mut Document<'_>) -> Option<Self>;

    /// Reports what is wrong with the values, and files that are missing.
    fn check(&self, document: &mut Document<'_>);

    /// Reads and checks a config file with `key=value` overrides.
    ///
    /// # Errors
    /// [`Error::Config`] with every mistake, and [`Error::Kilt`] where the file cannot be read.
    fn load(path: &Path, overrides: &[String]) -> Result<Self> {
        load(path, overrides, Self::check)
    }

    /// Reads a config file with `key=value` overrides, without a look at the values and the files that they name.
    ///
    /// # Errors
    /// As [`Config::load`].
    fn parse(path: &Path, overrides: &[String]) -> Result<Self> {
        without_mistakes(read(path, overrides, |_, _| {})?)
    }

    /// Every mistake in a config file with `key=value` overrides.
    ///
    /// # Errors
    /// Where the file cannot be read.
    fn mistakes(path: &Path, overrides: &[String]) -> Result<Vec<Diagnostic>> {
        Ok(inspect(path, overrides, Self::check)?.1)
    }
}

/// Where runs' folders go if a config does not say it.
pub(crate) fn runs() -> PathBuf {
    "runs".into()
}

/// Options as TOML that loads as the same options, with every default.
///
/// # Errors
/// [`Error::Io`] where a value has no form in TOML, such as a number beyond 64 bits.
pub(crate) fn to_toml<T: Config>(options: &T) -> Result<String> {
    let mut whole = toml::Table::new();
    whole.insert(WORKFLOW.to_owned(), options.workflow().into());
    // By way of a table, in which plain values come before tables whatever the order of fields.
    whole.extend(toml::Table::try_from(options).map_err(unwritable)?);
    toml::to_string_pretty(&whole).map_err(unwritable)
}

/// That a value has no form in TOML.
pub(crate) fn unwritable(error: toml::ser::Error) -> Error {
    Error::io(Path::new("config.toml"), "write")(std::io::Error::other(error))
}

/// Reads a config with its overrides. Numbers out of their ranges are reported, and `check` reports what else is wrong with the
/// values.
///
/// # Errors
/// Where the file cannot be read.
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

/// Reads a config with its overrides. `check` gets the options, if they can be read, and the document as it was written.
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
        // Stages were taken out while reading; checks look keys up in the document as it was written.
        document.restore(written);
        check(options.as_ref(), &mut document);
    }
    Ok((options, document.into_diagnostics()))
}

/// Reads a config that has no mistakes.
///
/// # Errors
/// [`Error::Config`] with every mistake, and [`Error::Kilt`] where the file cannot be read.
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

/// The mistakes that loading a config of this text with these overrides tells of, a line each.
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
