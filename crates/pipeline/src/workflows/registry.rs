//! The workflows: which one a config is for.

use std::path::Path;

use sporran_kilt::jsonl;

use crate::{
    Diagnostic, Error, Result,
    config::{
        Document, Text, WORKFLOW,
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

/// The workflows by the name that `workflow`, the first key of a config, gives them, each with a table that only its configs have.
const WORKFLOWS: [(&str, &str, ConfigKind); 14] = [
    ("answer", "tasks", ConfigKind::Run),
    ("retriever-training", "encoder-training", ConfigKind::Run),
    ("population", "relations", ConfigKind::Population),
    ("tagging", "annotations", ConfigKind::Tagging),
    ("entity-linking", "linking", ConfigKind::Linking),
    ("document-relations", "document-relations", ConfigKind::Documents),
    ("slot-filling", "slot-filling", ConfigKind::Slots),
    ("knowledge-selection", "data", ConfigKind::Selection),
    ("dialogue", "dialogues", ConfigKind::Responses),
    ("kbqa", "reasoner", ConfigKind::Reason),
    ("kbqa-benchmark", "documents", ConfigKind::Questions),
    ("link-prediction", "embedding", ConfigKind::Links),
    ("graph-network", "network", ConfigKind::Network),
    ("rules", "rules", ConfigKind::Rules),
];

/// The order in which tables tell what an old config without `workflow` is for: questions have `[data]`, what builds them
/// `[rules]`, and population has `[annotations]` as well.
const GUESSES: [&str; 13] = [
    "encoder-training",
    "embedding",
    "network",
    "reasoner",
    "documents",
    "rules",
    "document-relations",
    "linking",
    "slot-filling",
    "relations",
    "dialogues",
    "data",
    "annotations",
];

impl ConfigKind {
    /// The workflow of a config file with its overrides.
    ///
    /// # Errors
    /// [`Error::Config`] where the key `workflow` is missing or names none; [`Error::Kilt`] where the file cannot be read.
    pub fn of(path: &Path, overrides: &[String]) -> Result<Self> {
        let text = Text::new(path, jsonl::read_to_string(path)?, overrides);
        let mut document = Document::parse(&text);
        if let Some((_, _, kind)) = WORKFLOWS.iter().find(|(name, ..)| document.workflow() == Some(name)) {
            return Ok(*kind);
        }
        let names = WORKFLOWS.map(|(name, ..)| name);
        if !document.has(WORKFLOW) {
            let table = GUESSES.into_iter().find(|table| document.has(table)).unwrap_or("tasks");
            let name = WORKFLOWS.iter().find(|(_, own, _)| *own == table).map_or("answer", |(name, ..)| name);
            let listed = names.map(|name| format!("`{name}`")).join(", ");
            let message = format!(
                "is missing; it is one of {listed}; for this config add the line `workflow = \"{name}\"` at the top"
            );
            document.report_key(WORKFLOW, message);
        } else {
            document.take_workflow(&names);
        }
        Err(Error::Config(document.into_diagnostics()))
    }
}

/// A config of any workflow with its overrides and every default, as TOML that loads as the same config.
///
/// # Errors
/// [`Error::Config`] with every mistake, and [`Error::Kilt`] where the file cannot be read.
pub fn show(path: &Path, overrides: &[String]) -> Result<String> {
    fn shown<T: Config>(path: &Path, overrides: &[String]) -> Result<String> {
        to_toml(&T::parse(path, overrides)?)
    }
    let show = match ConfigKind::of(path, overrides)? {
        ConfigKind::Run => shown::<Options>,
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

/// Every mistake in a config of any workflow.
///
/// # Errors
/// Where the file cannot be read.
pub fn check(path: &Path, overrides: &[String]) -> Result<Vec<Diagnostic>> {
    let check = match ConfigKind::of(path, overrides) {
        Err(Error::Config(mistakes)) => return Ok(mistakes),
        Err(error) => return Err(error),
        Ok(ConfigKind::Run) => Options::mistakes,
        Ok(ConfigKind::Links) => LinksOptions::mistakes,
        Ok(ConfigKind::Network) => NetworkConfig::mistakes,
        Ok(ConfigKind::Reason) => ReasonOptions::mistakes,
        Ok(ConfigKind::Questions) => BuildConfig::mistakes,
        Ok(ConfigKind::Rules) => RulesOptions::mistakes,
        Ok(ConfigKind::Documents) => DocumentsOptions::mistakes,
        Ok(ConfigKind::Linking) => LinkingOptions::mistakes,
        Ok(ConfigKind::Population) => PopulationOptions::mistakes,
        Ok(ConfigKind::Responses) => ResponseOptions::mistakes,
        Ok(ConfigKind::Selection) => SelectionOptions::mistakes,
        Ok(ConfigKind::Slots) => SlotsOptions::mistakes,
        Ok(ConfigKind::Tagging) => TaggingOptions::mistakes,
    };
    let mut mistakes = check(path, overrides)?;
    mistakes.extend(also(path, overrides)?);
    Ok(mistakes)
}

/// What is wrong with the configs that the key `also` names.
fn also(path: &Path, overrides: &[String]) -> Result<Vec<Diagnostic>> {
    use ConfigKind::{Documents, Linking, Population, Reason, Responses, Slots};
    let text = Text::new(path, jsonl::read_to_string(path)?, overrides);
    let mut document = Document::parse(&text);
    for path in document.strings("also") {
        match ConfigKind::of(Path::new(&path), &[]) {
            Ok(Documents | Linking | Population | Reason | Responses | Slots) => {}
            Ok(_) => {
                let message =
                    format!("expected a config that `sporran run` runs without tasks, found {path}");
                document.report_key("also", message);
            }
            Err(error) => document.report_key("also", error.to_string()),
        }
    }
    Ok(document.into_diagnostics())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str, overrides: &[&str]) -> Result<ConfigKind> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, text).unwrap();
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        ConfigKind::of(&path, &overrides)
    }

    #[test]
    fn the_key_workflow_says_what_a_config_is_for() {
        for (name, _, expected) in WORKFLOWS {
            assert_eq!(kind(&format!("workflow = \"{name}\"\n"), &[]).unwrap(), expected);
        }
        assert_eq!(kind("[data]\n", &["workflow=rules"]).unwrap(), ConfigKind::Rules);
    }

    #[test]
    fn a_config_without_a_workflow_is_told_its_line() {
        for (text, expected) in [
            ("name = \"r\"\n[reranker]\nkind = \"tfidf\"\n", "answer"),
            ("[encoder-training]\n[tasks]\n", "retriever-training"),
            ("[data]\n", "knowledge-selection"),
            ("[data]\n[reasoner]\n", "kbqa"),
            ("[documents]\n[rules]\n", "kbqa-benchmark"),
            ("[rules]\n", "rules"),
            ("[data]\n[network]\n", "graph-network"),
            ("[data]\n[embedding]\n", "link-prediction"),
            ("[annotations]\n", "tagging"),
            ("[annotations]\n[relations]\n", "population"),
            ("[document-relations]\n", "document-relations"),
            ("[slot-filling]\n", "slot-filling"),
            ("[dialogues]\n", "dialogue"),
            ("[linking]\n[linker]\n", "entity-linking"),
        ] {
            let error = kind(text, &[]).unwrap_err().to_string();
            let line = format!("add the line `workflow = \"{expected}\"` at the top");
            assert!(error.contains(":1: `workflow`: is missing") && error.contains(&line), "{error}");
        }
    }

    #[test]
    fn an_unknown_workflow_is_refused_with_the_names_of_all() {
        let error = kind("workflow = \"anser\"\n", &[]).unwrap_err().to_string();
        assert!(error.contains("found `anser`") && error.contains("`graph-network`"), "{error}");
        let error = kind("workflow = 3\n", &[]).unwrap_err().to_string();
        assert!(error.contains("found a"), "{error}");
    }
}
