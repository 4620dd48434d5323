//! Reading a config file of any workflow.

use std::path::{Path, PathBuf};

use serde::Serialize;
use sporran_kilt::jsonl;

use super::{Diagnostic, Document, Text};
use crate::{Error, Result};

/// What a config of one kind says.
pub trait Config: Serialize + Sized {
    /// Takes it out of a document; mistakes are reported there.
    fn read(document: &mut Document<'_>) -> Option<Self>;

    /// Reports what is wrong with its values.
    fn check(&self, document: &mut Document<'_>);

    /// Reads a config file and lays `key=value` overrides over it.
    ///
    /// # Errors
    /// [`Error::Config`] with every mistake that was found, and [`Error::Kilt`] where the file cannot be read.
    fn load(path: &Path, overrides: &[String]) -> Result<Self> {
        load(path, overrides, Self::read, Self::check)
    }
}

/// Where runs' folders go if a config does not say it.
pub(crate) fn runs() -> PathBuf {
    "runs".into()
}

/// Options as TOML.
///
/// # Errors
/// [`Error::Io`] where a value has no form in TOML, such as a number beyond 64 bits.
pub(crate) fn to_toml(options: &impl Serialize) -> Result<String> {
    // By way of a table, in which plain values come before tables whatever the order of fields.
    toml::Table::try_from(options).and_then(|table| toml::to_string_pretty(&table)).map_err(unwritable)
}

/// That a value has no form in TOML.
pub(crate) fn unwritable(error: toml::ser::Error) -> Error {
    Error::io(Path::new("config.toml"), "write")(std::io::Error::other(error))
}

/// Reads a config with its overrides: `read` takes the document apart, and `check` tells what is wrong with the values, each
/// key in its place again.
///
/// # Errors
/// Where the file cannot be read.
pub(crate) fn inspect<T>(
    path: &Path,
    overrides: &[String],
    read: impl FnOnce(&mut Document<'_>) -> Option<T>,
    check: impl FnOnce(&T, &mut Document<'_>),
) -> Result<(Option<T>, Vec<Diagnostic>)> {
    let text = Text::new(path, jsonl::read_to_string(path)?, overrides);
    let mut document = Document::parse(&text);
    let written = document.clone();
    let options = read(&mut document);
    if let Some(options) = &options {
        // Stages were taken out while reading; checks look keys up in the document as it was written.
        document.restore(written);
        check(options, &mut document);
    }
    Ok((options, document.into_diagnostics()))
}

/// Reads a config that has no mistakes.
///
/// # Errors
/// [`Error::Config`] with every mistake that was found, and [`Error::Kilt`] where the file cannot be read.
pub(crate) fn load<T>(
    path: &Path,
    overrides: &[String],
    read: impl FnOnce(&mut Document<'_>) -> Option<T>,
    check: impl FnOnce(&T, &mut Document<'_>),
) -> Result<T> {
    let (options, diagnostics) = inspect(path, overrides, read, check)?;
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
