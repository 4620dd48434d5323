//! The workflows: which one a config is for.

use std::path::Path;

use sporran_kilt::jsonl;

use crate::{
    Result,
    config::{
        Document, Text,
        load::{Config, to_toml},
    },
    workflows::{
        answer::options::Options,
        document_relations::DocumentsOptions,
        entity_linking::LinkingOptions,
        kbqa::{BuildConfig, ReasonOptions},
        knowledge_selection::{ResponseOptions, SelectionOptions},
        link_prediction::{LinksOptions, NetworkConfig},
        population::PopulationOptions,
        rules::RulesOptions,
        slot_filling::SlotsOptions,
        tagging::TaggingOptions,
    },
};

/// What a config is for. Each kind but the first has a table that those before it in [`TABLES`] have not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigKind {
    /// A run over task files: [`Options`](crate::workflows::answer::options::Options).
    Run,
    /// Embeddings of a knowledge base: [`LinksOptions`](crate::workflows::link_prediction::LinksOptions).
    Links,
    /// A network over the graph of a knowledge base: [`NetworkConfig`](crate::workflows::link_prediction::NetworkConfig).
    Network,
    /// Questions over a knowledge base: [`ReasonOptions`](crate::workflows::kbqa::ReasonOptions).
    Reason,
    /// A benchmark of such questions to build: [`BuildConfig`](crate::workflows::kbqa::BuildConfig).
    Questions,
    /// Rules of a knowledge base: [`RulesOptions`](crate::workflows::rules::RulesOptions).
    Rules,
    /// Relations between the entities of documents: [`DocumentsOptions`](crate::workflows::document_relations::DocumentsOptions).
    Documents,
    /// Entity linking: [`LinkingOptions`](crate::workflows::entity_linking::LinkingOptions).
    Linking,
    /// Knowledge-base population: [`PopulationOptions`](crate::workflows::population::PopulationOptions).
    Population,
    /// Responses to dialogues: [`ResponseOptions`](crate::workflows::knowledge_selection::ResponseOptions).
    Responses,
    /// Knowledge selection: [`SelectionOptions`](crate::workflows::knowledge_selection::SelectionOptions).
    Selection,
    /// Zero-shot slot filling: [`SlotsOptions`](crate::workflows::slot_filling::SlotsOptions).
    Slots,
    /// A tagger of mentions: [`TaggingOptions`](crate::workflows::tagging::TaggingOptions).
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
