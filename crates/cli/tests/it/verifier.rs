//! Fact checking from a config: a verifier is trained, verifies claims and returns the evidence.

use std::{fs, path::Path, process::Output};

use crate::common::{errors, root, sporran};
use serde_json::Value;

/// Words in the vocabulary of the fixture's encoder.
const WHO: [&str; 3] = ["king", "queen", "president"];
const WHAT: [&str; 3] = ["book", "song", "film"];

fn stated(at: usize, verb: &str) -> String {
    format!("The {} {verb} the {}.", WHO[at], WHAT[at])
}

fn page(at: usize) -> String {
    let (name, text) = (WHO[at], stated(at, "wrote"));
    format!(
        r#"{{"wikipedia_id":"{at}","wikipedia_title":"{name}","text":["{name}","{text} Born in the year of the war."]}}"#
    )
}

/// A true claim has the verb `wrote`, a false one `played`.
fn claim(at: usize, is_true: bool) -> String {
    let (label, verb) = if is_true { ("SUPPORTS", "wrote") } else { ("REFUTES", "played") };
    let (text, end) = (stated(at, verb), stated(at, "wrote").len());
    format!(
        r#"{{"id":"{at}{verb}","input":"{text}","output":[{{"answer":"{label}","provenance":[{{"wikipedia_id":"{at}","start_paragraph_id":1,"start_character":0,"end_paragraph_id":1,"end_character":{end}}}]}}]}}"#
    )
}

fn write_inputs(folder: &Path) {
    let encoder = root().join("crates/transformers/tests/data/encoders/bert-sequence").display().to_string();
    let claims: Vec<String> = (0..6).map(|at| claim(at / 2, at % 2 == 0)).collect();
    fs::write(folder.join("pages.jsonl"), [0, 1, 2].map(page).join("\n")).unwrap();
    fs::write(folder.join("fever-train-kilt.jsonl"), claims.join("\n")).unwrap();
    let config = format!(
        r#"
workflow = "answer"
name = "r"
[source]
path = "pages.jsonl"
[tasks]
files = ["fever-train-kilt.jsonl"]
[retriever]
kind = "bm25"
[generator]
kind = "verifier"
model = "trained"
passages = 3
evidence = "sentence"
aggregate = "best"
[train]
model = "trained"
from = '{encoder}'
negatives = 1
[train.examples]
files = ["fever-train-kilt.jsonl"]
[train.optimizer]
epochs = 150
tokens-per-batch = 400
learning-rate = 5e-3
warmup-steps = 10
"#
    );
    fs::write(folder.join("c.toml"), config).unwrap();
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let output = sporran(folder, &[&["-q"], arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    output
}

#[test]
fn a_verifier_memorises_claims_and_returns_their_evidence() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    let trained: Value =
        serde_json::from_slice(&run(folder.path(), &["train", "c.toml", "--json"]).stdout).unwrap();
    assert_eq!(trained["best"][1], 1.0, "{trained}");
    run(folder.path(), &["run", "c.toml"]);
    let report: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("runs/r/report.json")).unwrap()).unwrap();
    // Every verdict is right, and the evidence holds all pages that were read.
    assert_eq!(report["tasks"][0]["scores"]["answer"], 1.0, "{report}");
    assert_eq!(report["tasks"][0]["scores"]["recall@5"], 1.0, "{report}");
}

#[test]
fn matching_networks_select_sentences_and_check_claims() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    let path = folder.path().join("c.toml");
    let config = fs::read_to_string(&path).unwrap();
    let from = config.lines().find(|line| line.starts_with("from = ")).unwrap().to_owned();
    let small = "[train.matching]\nvocabulary = 300\nembedding-size = 8\nhidden-size = 8\nprojection-size = 8\ndropout = 0.0\n";
    let selection = "[generator.selection]\nmodel = \"selector\"\nsentences = 1\n";
    let config = config.replace(&from, "").replace("[train]", &format!("{selection}[train]"));
    fs::write(&path, config + small).unwrap();
    let trained: Value =
        serde_json::from_slice(&run(folder.path(), &["train", "c.toml", "--json"]).stdout).unwrap();
    assert_eq!(trained["best"][1], 1.0, "{trained}");
    run(folder.path(), &["run", "c.toml"]);
    let report: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("runs/r/report.json")).unwrap()).unwrap();
    // The selector puts the sentence of the right page first, so its page is the evidence.
    let scores = &report["tasks"][0]["scores"];
    assert_eq!((&scores["answer"], &scores["kilt"]), (&Value::from(1.0), &Value::from(1.0)), "{report}");
    // Weights of another shape are refused by name.
    fs::copy(folder.path().join("selector/config.json"), folder.path().join("trained/config.json")).unwrap();
    let output = sporran(folder.path(), &["-q", "run", "c.toml", "name=s"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(
        errors(&output).contains("tensor `output.bias`: expected shape [2], found [3]"),
        "{}",
        errors(&output)
    );
}

#[test]
fn a_model_with_other_labels_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    let model = root().join("crates/transformers/tests/data/encoders/bert-sequence").display().to_string();
    let model = format!("generator.model={model}");
    let output = sporran(folder.path(), &["-q", "run", "c.toml", &model]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    let expected =
        "expected a classifier with the labels SUPPORTS, REFUTES and NOT ENOUGH INFO, found LABEL_0";
    assert!(errors(&output).contains(expected), "{}", errors(&output));
}
