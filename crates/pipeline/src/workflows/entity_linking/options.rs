//! What a config of entity linking says. These types' documentation is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_extractor::LinkerOptions;

use crate::{
    config::Config,
    source::{options::SourceOptions, pages},
    workflows::population::{CoreferenceKind, MentionsOptions, NamesOptions},
};

/// A whole config of entity linking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkingOptions {
    /// `name`: the run's folder under `output`.
    pub name: String,
    /// `output`: where runs' folders go.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[source]`: the knowledge source whose pages are the provenance: an entity's page is what `linking.pages` says, and
    /// otherwise the page of its label.
    pub source: Option<SourceOptions>,
    /// `[linking]`: what is linked.
    pub linking: LinkedInput,
    /// `[linker]`: names of entities, and when a link is sure enough.
    pub linker: NamedEntities,
    /// `[mentions]`: what tells persons, organisations and places apart, for coreference.
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
    /// Files of texts with mentions and what they mean, in a layout of [`sporran_kilt::linked`].
    pub files: Vec<PathBuf>,
    /// The file of entities, for files that tell entities by their numbers there.
    pub entities: Option<PathBuf>,
    /// A table of entities' pages: lines of an entity's id, a tab, and the page's id, or with a `[source]` its title.
    pub pages: Option<PathBuf>,
}

/// `[linker]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NamedEntities {
    /// `[[linker.names]]`: what the knowledge base calls its entities.
    pub names: Vec<NamesOptions>,
    /// `[linker.decision]`: how senses are weighed, and when a link is withheld.
    #[serde(default)]
    pub decision: LinkerOptions,
    /// A knowledge base's folder or file of triples: of two senses that is likelier that has facts with what else is named.
    pub facts: Option<PathBuf>,
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
        if self.linker.names.is_empty() {
            document.report_key("linker.names", "expected at least one `[[linker.names]]`");
        }
        for names in self.linker.names.iter().filter(|names| !names.file.exists()) {
            document.report_key("linker.names", format!("no file {}", names.file.display()));
        }
        if let Some(path) = self.linker.facts.as_ref().filter(|path| !path.exists()) {
            document.report_key("linker.facts", format!("no file {}", path.display()));
        }
        self.mentions.check(document, self.coreference);
    }
}

impl LinkingOptions {
    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }
}
