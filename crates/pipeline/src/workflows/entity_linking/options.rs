//! The options of entity linking. The documentation of these types is the manual of the config file.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_extractor::{MentionsOptions, NamedEntities, coreference::CoreferenceKind};

use crate::{
    Result,
    config::Config,
    source::{options::SourceOptions, pages},
};

/// A whole config of entity linking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkingOptions {
    /// `name`: the name of the run's folder in `output`.
    pub name: String,
    /// `output`: the parent folder of runs.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[source]`: the knowledge source of the provenance. The page of an entity is that of `linking.pages`,
    /// else the page with the entity's label as title.
    pub source: Option<SourceOptions>,
    /// `[linking]`: the input.
    pub linking: LinkedInput,
    /// `[linker]`: the names of entities, and the thresholds of links.
    pub linker: NamedEntities,
    /// `[mentions]`: the tagger of types, for coreference.
    #[serde(default)]
    pub mentions: MentionsOptions,
    /// `coreference`: `none`, or `rules`.
    #[serde(default)]
    pub coreference: CoreferenceKind,
}

/// `[linking]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkedInput {
    /// Files of texts with mentions and gold entities, one JSON object a line: with `labels`, as in ELEVANT, or with `mentions` and `label_id`, as in TABi.
    pub files: Vec<PathBuf>,
    /// The file of entities, for input files that refer to entities by their `label_id`.
    pub entities: Option<PathBuf>,
    /// A table of the pages of entities: each line is an entity's id, a tab, and the page's id, or with a `[source]` its title.
    pub pages: Option<PathBuf>,
}

impl Config for LinkingOptions {
    const WORKFLOWS: &'static [&'static str] = &["entity-linking"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        document.read_root(&[])
    }

    fn check(&self, document: &mut Document<'_>) {
        let LinkedInput { files, entities, pages } = &self.linking;
        pages::check(self.source.as_ref(), ("linking.pages", pages.as_deref()), document);
        if files.is_empty() {
            document.report_key("linking.files", "expected at least one file");
        }
        document.check_inputs("linking.files", files);
        if let Some(path) = entities.as_ref().filter(|path| !path.is_file()) {
            document.report_key("linking.entities", format!("no file {}", path.display()));
        }
        self.check_models(document);
    }
}

impl LinkingOptions {
    /// Reads and checks a config for the texts of a program. The files of `[linking]` and `[source]` need not exist.
    ///
    /// # Errors
    /// Those of [`Config::load`].
    pub fn load_for_texts(path: &Path, overrides: &[String]) -> Result<Self> {
        crate::config::load(path, overrides, Self::check_models)
    }

    fn check_models(&self, document: &mut Document<'_>) {
        self.linker.check("linker", document);
        self.mentions.check("mentions", self.coreference != CoreferenceKind::None, document);
    }

    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }
}
