//! `sporran run` with a config of entity linking, from the shell.

use std::{fs, path::Path};

use crate::common::{errors, json, root, sporran};
use serde_json::Value;

const CONFIG: &str = r#"
workflow = "entity-linking"
name = "linking"
coreference = "rules"

[linking]
files = ["texts.jsonl", "numbered.jsonl"]
entities = "entities.jsonl"

[[linker.names]]
file = "entities.jsonl"
format = "entities"
"#;

const ENTITIES: &str = r#"{"label_id": 7, "kb_idx": "Q19837", "title": "Steve Jobs", "text": "American founder and chief executive of Apple"}
{"label_id": 8, "kb_idx": "Q192668", "title": "Steve Reich", "text": "American composer of minimal music"}
{"label_id": 9, "kb_idx": "Q30", "title": "United States", "text": "country in North America"}
"#;

/// A part of a name, a name of no entity, a demonym, and a mention inside another.
const TEXTS: &str = r#"{"id": "a", "text": "Steve led Apple as chief executive. He wore an Zürich coat.", "labels": [{"span": [0, 5], "entity_id": "Q19837"}, {"span": [47, 53], "entity_id": "Q72"}]}
{"id": "b", "text": "The American slept.", "labels": [{"span": [0, 12], "entity_id": "<NIL>"}, {"span": [4, 12], "entity_id": "Q30"}]}
"#;
const NUMBERED: &str = r#"{"id": 3, "text": "Steve Reich wrote it.", "mentions": [[0, 11]], "label_id": [8]}
"#;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("c.toml", CONFIG),
        ("entities.jsonl", ENTITIES),
        ("texts.jsonl", TEXTS),
        ("numbered.jsonl", NUMBERED),
    ];
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn report(folder: &Path, overrides: &[&str]) -> Value {
    let arguments: Vec<&str> =
        ["run", "c.toml", "--json"].into_iter().chain(overrides.iter().copied()).collect();
    json(folder, &arguments)
}

#[test]
fn given_mentions_are_linked_and_counted() {
    let folder = folder();
    let report = report(folder.path(), &[]);
    assert_eq!([&report["entities"], &report["names"]], [3, 3]);
    let texts = &report["files"][0];
    assert_eq!(texts["file"], "texts");
    // The table lacks Zurich, so only two of the four mentions can be right.
    assert_eq!([&texts["mentions"], &texts["held"], &texts["right"]], [4, 2, 2]);
    assert_eq!(texts["accuracy"], 1.0);
    assert_eq!(report["files"][1]["right"], 1);
    let records: Vec<Value> = fs::read_to_string(folder.path().join("runs/linking/predictions/texts.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records[0]["id"], "a:0-5");
    assert_eq!(
        records[0]["input"].as_str().unwrap().split(" led").next(),
        Some("[START_ENT] Steve [END_ENT]")
    );
    assert_eq!(records[0]["output"][0]["answer"], "Steve Jobs");
    assert_eq!(records[0]["meta"]["entity"], "Q19837");
    assert_eq!(records[0]["output"][0]["provenance"], serde_json::json!([]));
    assert_eq!(records[1]["output"], serde_json::json!([{ "answer": "", "provenance": [] }]));
}

#[test]
fn the_table_or_the_label_decides_an_entitys_page() {
    let folder = folder();
    let pages = r#"{"wikipedia_id":"5","wikipedia_title":"Jobs, Steve","text":["Jobs, Steve"]}
{"wikipedia_id":"6","wikipedia_title":"Steve Reich","text":["Steve Reich"]}"#;
    fs::write(folder.path().join("pages.jsonl"), pages).unwrap();
    fs::write(folder.path().join("pages.tsv"), "Q19837\tJobs, Steve\n").unwrap();
    report(folder.path(), &["source.path=pages.jsonl", "linking.pages=pages.tsv"]);
    let page = |name: &str| {
        let path = folder.path().join("runs/linking/predictions").join(name);
        let text = fs::read_to_string(path).unwrap();
        let record: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let item = &record["output"][0]["provenance"][0];
        (item["wikipedia_id"].clone(), item["title"].clone())
    };
    assert_eq!(page("texts.jsonl"), ("5".into(), "Jobs, Steve".into()));
    assert_eq!(page("numbered.jsonl"), ("6".into(), "Steve Reich".into()));
    fs::write(folder.path().join("pages.tsv"), "Q19837\tUnknown\n").unwrap();
    let wrong = ["run", "c.toml", "source.path=pages.jsonl", "linking.pages=pages.tsv"];
    let output = sporran(folder.path(), &wrong).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(
        errors(&output).contains("pages.tsv:1") && errors(&output).contains("`Unknown`"),
        "{}",
        errors(&output)
    );
}

#[test]
fn matching_of_similar_names_can_be_disabled() {
    let folder = folder();
    let report = report(folder.path(), &["linker.decision.similarity=1.0"]);
    let right = |at: usize| report["files"][at]["right"].as_u64().unwrap();
    assert_eq!([right(0), right(1)], [1, 1], "a part of a name has no entity");
}

#[test]
fn the_config_of_the_repository_has_no_mistakes() {
    let folder = folder();
    let config = root().join("configs/linking.toml");
    let tagger = format!("mentions.tagger={}", root().join("models/ner-small").display());
    let arguments = [
        "config",
        "check",
        config.to_str().unwrap(),
        r#"linking.files=["texts.jsonl"]"#,
        "linking.entities=entities.jsonl",
        r#"linker.names=[{file="entities.jsonl",format="entities"}]"#,
        "linker.facts=texts.jsonl",
        &tagger,
    ];
    let output = sporran(folder.path(), &arguments).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
}

#[test]
fn errors_name_file_line_and_field() {
    let folder = folder();
    let message = |text: &str, overrides: &[&str]| {
        fs::write(folder.path().join("texts.jsonl"), text).unwrap();
        let arguments: Vec<&str> = ["run", "c.toml"].into_iter().chain(overrides.iter().copied()).collect();
        let output = sporran(folder.path(), &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        assert!(!folder.path().join("runs").exists(), "something was written");
        errors(&output)
    };
    let outside =
        message(r#"{"id": 1, "text": "Paris", "labels": [{"span": [0, 9], "entity_id": "Q90"}]}"#, &[]);
    assert!(outside.contains("texts.jsonl:1") && outside.contains("labels[0].span"), "{outside}");
    let range = message(TEXTS, &["linker.decision.threshold=2.0"]);
    assert!(range.contains("linker.decision.threshold") && range.contains("0 to 1"), "{range}");
    let missing = message(TEXTS, &["linking.entities=none.jsonl"]);
    assert!(missing.contains("linking.entities") && missing.contains("none.jsonl"), "{missing}");
}
