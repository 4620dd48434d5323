//! Kinds of configs: which one a file is, and how a file of any kind is read.

use std::path::{Path, PathBuf};

use serde::Serialize;
use sporran_kilt::jsonl;

use crate::{
    Error, Options, Result,
    config::{Diagnostic, Document, Text},
    documents::DocumentsOptions,
    korc::{BuildConfig, ReasonOptions},
    linking::LinkingOptions,
    links::{LinksOptions, NetworkConfig},
    population::PopulationOptions,
    rules::RulesOptions,
    selection::{ResponseOptions, SelectionOptions},
    slots::SlotsOptions,
    tagging::TaggingOptions,
};

/// What a config is for. Each kind but the first has a table that those before it in [`TABLES`] have not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigKind {
    /// A run over task files: [`Options`](crate::Options).
    Run,
    /// Embeddings of a knowledge base: [`LinksOptions`](crate::links::LinksOptions).
    Links,
    /// A network over the graph of a knowledge base: [`NetworkConfig`](crate::links::NetworkConfig).
    Network,
    /// Questions over a knowledge base: [`ReasonOptions`](crate::korc::ReasonOptions).
    Reason,
    /// A benchmark of such questions to build: [`BuildConfig`](crate::korc::BuildConfig).
    Questions,
    /// Rules of a knowledge base: [`RulesOptions`](crate::rules::RulesOptions).
    Rules,
    /// Relations between the entities of documents: [`DocumentsOptions`](crate::documents::DocumentsOptions).
    Documents,
    /// Entity linking: [`LinkingOptions`](crate::linking::LinkingOptions).
    Linking,
    /// Knowledge-base population: [`PopulationOptions`](crate::population::PopulationOptions).
    Population,
    /// Responses to dialogues: [`ResponseOptions`](crate::selection::ResponseOptions).
    Responses,
    /// Knowledge selection: [`SelectionOptions`](crate::selection::SelectionOptions).
    Selection,
    /// Zero-shot slot filling: [`SlotsOptions`](crate::slots::SlotsOptions).
    Slots,
    /// A tagger of mentions: [`TaggingOptions`](crate::tagging::TaggingOptions).
    Tagging,
}

/// The tables that tell kinds apart. The first that a config has decides: questions have `[data]`, what builds them `[rules]`,
/// and population has `[annotations]` as well.
const TABLES: [(&str, ConfigKind); 12] = [
    ("embedding", ConfigKind::Links),
    ("network", ConfigKind::Network),
    ("reasoner", ConfigKind::Reason),
    ("documents", ConfigKind::Questions),
    ("rules", ConfigKind::Rules),
    ("document-relations", ConfigKind::Documents),
    ("linking", ConfigKind::Linking),
    ("slot-filling", ConfigKind::Slots),
    ("relations", ConfigKind::Population),
    ("dialogues", ConfigKind::Responses),
    ("data", ConfigKind::Selection),
    ("annotations", ConfigKind::Tagging),
];

impl ConfigKind {
    /// The kind of a config file with its overrides.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn of(path: &Path, overrides: &[String]) -> Result<Self> {
        let text = Text::new(path, jsonl::read_to_string(path)?, overrides);
        let document = Document::parse(&text);
        let kind = TABLES.into_iter().find(|(table, _)| document.has(table));
        Ok(kind.map_or(Self::Run, |(_, kind)| kind))
    }
}

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

/// A config of any kind with its overrides laid over it and every default written out, as TOML that loads as the same config.
///
/// # Errors
/// [`Error::Config`] with every mistake that was found, and [`Error::Kilt`] where the file cannot be read.
pub fn show(path: &Path, overrides: &[String]) -> Result<String> {
    fn shown<T: Config>(path: &Path, overrides: &[String]) -> Result<String> {
        to_toml(&T::load(path, overrides)?)
    }
    let show = match ConfigKind::of(path, overrides)? {
        ConfigKind::Run => return Options::load(path, overrides)?.to_toml(),
        ConfigKind::Links => shown::<LinksOptions>,
        ConfigKind::Network => shown::<NetworkConfig>,
        ConfigKind::Reason => shown::<ReasonOptions>,
        ConfigKind::Questions => shown::<BuildConfig>,
        ConfigKind::Rules => shown::<RulesOptions>,
        ConfigKind::Documents => shown::<DocumentsOptions>,
        ConfigKind::Linking => shown::<LinkingOptions>,
        ConfigKind::Population => shown::<PopulationOptions>,
        ConfigKind::Responses => shown::<ResponseOptions>,
        ConfigKind::Selection => shown::<SelectionOptions>,
        ConfigKind::Slots => shown::<SlotsOptions>,
        ConfigKind::Tagging => shown::<TaggingOptions>,
    };
    show(path, overrides)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_table_that_a_config_has_tells_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        let kind = |text: &str, overrides: &[&str]| {
            std::fs::write(&path, text).unwrap();
            let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
            ConfigKind::of(&path, &overrides).unwrap()
        };
        assert_eq!(kind("name = \"r\"\n[reranker]\nkind = \"tfidf\"\n", &[]), ConfigKind::Run);
        assert_eq!(kind("name = \"r\"\n", &["data.train=x.json"]), ConfigKind::Selection);
        assert_eq!(kind("[data]\n[reasoner]\n", &[]), ConfigKind::Reason);
        assert_eq!(kind("[documents]\n[rules]\n", &[]), ConfigKind::Questions);
        assert_eq!(kind("[rules]\n", &[]), ConfigKind::Rules);
        assert_eq!(kind("[data]\n[network]\n", &[]), ConfigKind::Network);
        assert_eq!(kind("[annotations]\n", &[]), ConfigKind::Tagging);
        assert_eq!(kind("[annotations]\n[relations]\n", &[]), ConfigKind::Population);
        assert_eq!(kind("[document-relations]\n", &[]), ConfigKind::Documents);
        assert_eq!(kind("[slot-filling]\n", &[]), ConfigKind::Slots);
        assert_eq!(kind("[dialogues]\n", &[]), ConfigKind::Responses);
        assert_eq!(kind("[linking]\n[linker]\n", &[]), ConfigKind::Linking);
    }
}
