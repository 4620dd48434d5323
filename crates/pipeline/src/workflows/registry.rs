//! The registry of workflows.

use std::path::Path;

use sporran_config::{Document, Text, WORKFLOW, explain};
use sporran_kilt::{folder::Shard, jsonl, observe::Observer};

use crate::{
    Diagnostic, Error, Result,
    run_dir::shard::ShardReport,
    workflows::{
        answer, document_relations, entity_linking, kbqa, knowledge_selection, link_prediction, population,
        rules, slot_filling, tagging,
        workflow::{Outcome, Workflow},
    },
};

/// Every workflow.
pub const WORKFLOWS: [&Workflow; 14] = [
    &answer::workflow::WORKFLOW,
    &answer::workflow::RETRIEVER_TRAINING,
    &population::workflow::WORKFLOW,
    &tagging::workflow::WORKFLOW,
    &entity_linking::workflow::WORKFLOW,
    &document_relations::workflow::WORKFLOW,
    &slot_filling::workflow::WORKFLOW,
    &knowledge_selection::workflow::WORKFLOW,
    &knowledge_selection::workflow::DIALOGUE,
    &kbqa::workflow::WORKFLOW,
    &kbqa::workflow::BENCHMARK,
    &link_prediction::workflow::WORKFLOW,
    &link_prediction::workflow::GRAPH_NETWORK,
    &rules::WORKFLOW,
];

/// Tables that suggest the workflow of an old config without `workflow`, in order. A config of `kbqa` also has `[data]`, one of
/// `kbqa-benchmark` also `[rules]`, and one of `population` also `[annotations]`.
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

/// The workflow of a config file with its overrides.
///
/// # Errors
/// [`Error::Config`] if the key `workflow` is missing or unknown; [`Error::Kilt`] if the file cannot be read.
pub fn workflow_of(path: &Path, overrides: &[String]) -> Result<&'static Workflow> {
    let text = Text::new(path, jsonl::read_to_string(path)?, overrides);
    let mut document = Document::parse(&text);
    if let Some(workflow) = WORKFLOWS.iter().find(|workflow| document.workflow() == Some(workflow.name)) {
        return Ok(workflow);
    }
    let names = WORKFLOWS.map(|workflow| workflow.name);
    if document.has(WORKFLOW) {
        document.take_workflow(&names);
    } else {
        let table = GUESSES.into_iter().find(|table| document.has(table));
        let likely = WORKFLOWS.iter().find(|workflow| Some(workflow.table) == table);
        let name = likely.map_or("answer", |workflow| workflow.name);
        let listed = names.map(|name| format!("`{name}`")).join(", ");
        let message = format!(
            "is missing; it is one of {listed}; for this config add the line `workflow = \"{name}\"` at the top"
        );
        document.report_key(WORKFLOW, message);
    }
    Err(Error::Config(document.into_diagnostics()))
}

/// A config of any workflow with its overrides and every default, as TOML that loads as the same config.
///
/// # Errors
/// [`Error::Config`] with every mistake, and [`Error::Kilt`] if the file cannot be read.
pub fn show(path: &Path, overrides: &[String]) -> Result<String> {
    let workflow = workflow_of(path, overrides)?;
    with_owners(workflow, path, overrides, workflow.show(path, overrides))
}

/// Adds to the mistake of an unknown key at the top which workflows have it.
fn name_owners(workflow: &Workflow, mistakes: &mut [Diagnostic]) {
    let has = |other: &Workflow, key: &str| {
        let schema = other.schema();
        let keys = schema.get("properties").and_then(|properties| properties.as_object());
        keys.is_some_and(|keys| keys.contains_key(key))
    };
    for Diagnostic { key, message, .. } in mistakes {
        if key.contains(['.', '[']) || !message.starts_with("unknown field") || message.ends_with('?') {
            continue;
        }
        let others = WORKFLOWS.iter().filter(|other| other.name != workflow.name && has(other, key));
        let owners: Vec<String> = others.map(|other| format!("`workflow = \"{}\"`", other.name)).collect();
        if !owners.is_empty() {
            message.push_str(&format!("; `{key}` belongs to {}", owners.join(", ")));
        }
    }
}

fn with_owners<T>(workflow: &Workflow, path: &Path, overrides: &[String], result: Result<T>) -> Result<T> {
    result.map_err(|error| match placed(path, overrides, error) {
        Error::Config(mut mistakes) => {
            name_owners(workflow, &mut mistakes);
            Error::Config(mistakes)
        }
        other => other,
    })
}

/// An error whose mistakes name the config and the line of their key, also those that were found after the config was read.
#[must_use]
pub fn placed(path: &Path, overrides: &[String], error: Error) -> Error {
    let Error::Config(mistakes) = error else { return error };
    let (loose, mut placed): (Vec<_>, Vec<_>) =
        mistakes.into_iter().partition(|mistake| mistake.line == 0 && mistake.origin == "config");
    match jsonl::read_to_string(path) {
        Ok(text) if !loose.is_empty() => {
            let text = Text::new(path, text, overrides);
            let mut document = Document::parse(&text);
            for Diagnostic { key, message, .. } in loose {
                document.report_key(&key, message);
            }
            placed.extend(document.into_diagnostics());
        }
        _ => placed.extend(loose),
    }
    Error::Config(placed)
}

/// The workflow of this name.
#[must_use]
pub fn workflow_named(name: &str) -> Option<&'static Workflow> {
    WORKFLOWS.into_iter().find(|workflow| workflow.name == name)
}

/// All possible keys of a config, as TOML with comments: meaning, unit, range and default. Keys of the config
/// are marked, the others are commented out.
///
/// # Errors
/// [`Error::Config`] with every mistake, and [`Error::Kilt`] if the file cannot be read.
pub fn explain(path: &Path, overrides: &[String]) -> Result<String> {
    // Fails for an invalid config.
    show(path, overrides)?;
    let workflow = workflow_of(path, overrides)?;
    let text = Text::new(path, jsonl::read_to_string(path)?, overrides);
    let document = Document::parse(&text);
    match document.values() {
        Some(config) => Ok(explain::as_toml(workflow.name, &workflow.schema(), Some(&config))),
        None => Err(Error::Config(document.into_diagnostics())),
    }
}

/// The manual of configs: pages in Markdown by their file names.
#[must_use]
pub fn manual() -> Vec<(String, String)> {
    let mut index = "# Configs\n\n\
         `sporran docs config` generates these pages from the program. Do not edit them.\n\n\
         A config is a TOML file. Its first key, `workflow`, selects the workflow.\n\n\
         | workflow | description |\n|---|---|\n"
        .to_owned();
    let mut pages = Vec::new();
    for workflow in WORKFLOWS {
        let Workflow { name, summary: about, .. } = workflow;
        index.push_str(&format!("| [`{name}`]({name}.md) | {about} |\n"));
        pages.push((format!("{name}.md"), explain::as_markdown(name, about, &workflow.schema())));
    }
    index.push_str(
        "\n`sporran config check CONFIG` finds misspelt keys, wrong values and missing files. The contents of files are checked \
         when they are read.\n\n\
         `sporran config show --explain CONFIG` shows all keys of a config.\n\n\
         `KEY=VALUE` after a config replaces a value, such as `retriever.k1=1.2`. Paths are relative to the working \
         directory.\n",
    );
    pages.push(("README.md".to_owned(), index));
    pages
}

/// All mistakes in a config of any workflow.
///
/// # Errors
/// If the file cannot be read.
pub fn check(path: &Path, overrides: &[String]) -> Result<Vec<Diagnostic>> {
    let workflow = match workflow_of(path, overrides) {
        Err(Error::Config(mistakes)) => return Ok(mistakes),
        other => other?,
    };
    let mut mistakes = workflow.mistakes(path, overrides)?;
    name_owners(workflow, &mut mistakes);
    // Both find a mistake in an override.
    let then = check_then(path, overrides)?;
    mistakes.extend(then.into_iter().filter(|mistake| !mistakes.contains(mistake)).collect::<Vec<_>>());
    Ok(mistakes)
}

/// Runs a config of any workflow.
///
/// # Errors
/// Those of [`Workflow::run`]. Mistakes in the configs of the key `then` are reported first.
pub fn run(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let workflow = runnable(path, overrides)?;
    with_owners(workflow, path, overrides, workflow.run(path, overrides, observe))
}

/// Does a shard of [`run`]. The merge of all shards runs the configs of the key `then`.
///
/// # Errors
/// As [`run`], and [`Error::Config`] for a config of a workflow without shards.
pub fn run_shard(
    path: &Path,
    overrides: &[String],
    shard: Shard,
    observe: &mut Observer<'_>,
) -> Result<ShardReport> {
    let workflow = runnable(path, overrides)?;
    with_owners(workflow, path, overrides, workflow.shard(path, overrides, shard, observe))
}

/// The workflow of a config whose key `then` has no mistakes.
fn runnable(path: &Path, overrides: &[String]) -> Result<&'static Workflow> {
    let workflow = workflow_of(path, overrides)?;
    let mistakes = check_then(path, overrides)?;
    if mistakes.is_empty() { Ok(workflow) } else { Err(Error::Config(mistakes)) }
}

/// Runs a config that must be of the workflow `name`.
///
/// # Errors
/// Those of [`Workflow::run`], and [`Error::Config`] for a config of another workflow.
pub fn run_as(name: &str, path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let workflow = named(name, path, overrides)?;
    with_owners(workflow, path, overrides, workflow.run(path, overrides, observe))
}

/// Does a shard of [`run_as`].
///
/// # Errors
/// As [`run_as`], and [`Error::Config`] for a workflow without shards.
pub fn run_shard_as(
    name: &str,
    path: &Path,
    overrides: &[String],
    shard: Shard,
    observe: &mut Observer<'_>,
) -> Result<ShardReport> {
    let workflow = named(name, path, overrides)?;
    with_owners(workflow, path, overrides, workflow.shard(path, overrides, shard, observe))
}

/// The workflow of a config that must be `name`.
///
/// # Errors
/// [`Error::Config`] for a config of another workflow, and those of [`workflow_of`].
fn named(name: &str, path: &Path, overrides: &[String]) -> Result<&'static Workflow> {
    let workflow = workflow_of(path, overrides)?;
    if workflow.name != name {
        let message = format!("expected `{name}`, found `{}`", workflow.name);
        let origin = path.display().to_string();
        return Err(Error::Config(vec![Diagnostic { origin, line: 0, key: WORKFLOW.to_owned(), message }]));
    }
    Ok(workflow)
}

/// Trains the model of a config of any workflow.
///
/// # Errors
/// Those of [`Workflow::train`].
pub fn train(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let workflow = workflow_of(path, overrides)?;
    with_owners(workflow, path, overrides, workflow.train(path, overrides, observe))
}

/// The mistakes in the configs of the key `then`.
fn check_then(path: &Path, overrides: &[String]) -> Result<Vec<Diagnostic>> {
    let text = Text::new(path, jsonl::read_to_string(path)?, overrides);
    let mut document = Document::parse(&text);
    for path in document.strings("then") {
        match workflow_of(Path::new(&path), &[]) {
            // A config with tasks could run this one again.
            Ok(workflow)
                if workflow.runs() && workflow.name != "answer" && workflow.name != "retriever-training" => {}
            Ok(_) => {
                let message =
                    format!("expected a config that `sporran run` runs without tasks, found {path}");
                document.report_key("then", message);
            }
            Err(_) if !Path::new(&path).exists() => document.report_key("then", format!("no file {path}")),
            Err(error) => document.report_key("then", error.to_string()),
        }
    }
    Ok(document.into_diagnostics())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str, overrides: &[&str]) -> Result<&'static str> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, text).unwrap();
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        workflow_of(&path, &overrides).map(|workflow| workflow.name)
    }

    #[test]
    fn a_mistake_that_is_found_late_has_the_line_of_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, "workflow = \"answer\"\n[generator]\nmodel = \"none\"\n").unwrap();
        let late = || Error::Config(vec![Diagnostic::of_config("generator.model", "no folder none")]);
        let shown = placed(&path, &[], late()).to_string();
        assert!(shown.ends_with("c.toml:3: `generator.model`: no folder none"), "{shown}");
        let shown = placed(&path, &["generator.model=none".into()], late()).to_string();
        assert!(shown.contains("override `generator.model=none`: `generator.model`: no folder"), "{shown}");
    }

    #[test]
    fn a_missing_config_of_then_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, "workflow = \"answer\"\nthen = [\"none.toml\"]\n").unwrap();
        let found = check_then(&path, &[]).unwrap();
        assert_eq!((found[0].line, found[0].message.as_str()), (2, "no file none.toml"));
    }

    #[test]
    fn the_key_workflow_selects_the_workflow() {
        for workflow in WORKFLOWS {
            assert_eq!(name(&format!("workflow = \"{}\"\n", workflow.name), &[]).unwrap(), workflow.name);
        }
        assert_eq!(name("[data]\n", &["workflow=rules"]).unwrap(), "rules");
    }

    #[test]
    fn an_error_for_a_missing_workflow_suggests_the_line() {
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
            let error = name(text, &[]).unwrap_err().to_string();
            let line = format!("add the line `workflow = \"{expected}\"` at the top");
            assert!(error.contains(":1: `workflow`: is missing") && error.contains(&line), "{error}");
        }
    }

    #[test]
    fn an_unknown_workflow_is_refused_with_the_names_of_all() {
        let error = name("workflow = \"anser\"\n", &[]).unwrap_err().to_string();
        assert!(error.contains("found `anser`") && error.contains("`graph-network`"), "{error}");
        let error = name("workflow = 3\n", &[]).unwrap_err().to_string();
        assert!(error.contains("found a"), "{error}");
    }

    #[test]
    fn a_table_of_other_workflows_is_named_as_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        let text = "workflow = \"answer\"\nname = \"r\"\n[tasks]\n[linker]\nx = 1\n[nonsense]\n";
        std::fs::write(&path, text).unwrap();
        let mistakes = check(&path, &[]).unwrap();
        let of = |key: &str| mistakes.iter().find(|mistake| mistake.key == key).unwrap().message.clone();
        let expected = "; `linker` belongs to `workflow = \"population\"`, `workflow = \"entity-linking\"`";
        assert!(of("linker").ends_with(expected), "{}", of("linker"));
        assert!(!of("nonsense").contains("belongs to"), "{}", of("nonsense"));
    }
}
