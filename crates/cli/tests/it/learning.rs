//! Trainings of generators together with their selection of passages: a memory network selects a sentence; RAG trains its
//! question encoder through the generator and keeps the passage index.

use std::{fs, path::Path, process::Output};

use crate::common::{errors, root, sporran};
use serde_json::Value;

/// Words in the vocabulary of the fixture's encoder.
const WHO: [&str; 4] = ["king", "queen", "president", "author"];
const WHAT: [&str; 4] = ["book", "song", "film", "city"];

fn page(at: usize) -> String {
    let (who, what) = (WHO[at], WHAT[at]);
    format!(
        r#"{{"wikipedia_id":"{at}","wikipedia_title":"{who}","text":["{who}","The {who} wrote the {what}."]}}"#
    )
}

fn question(at: usize) -> String {
    let (who, what) = (WHO[at], WHAT[at]);
    format!(
        r#"{{"id":"{at}","input":"The {who} wrote","output":[{{"answer":"{what}","provenance":[{{"wikipedia_id":"{at}"}}]}}]}}"#
    )
}

fn write_inputs(folder: &Path, kind: &str) {
    let encoder = root().join("crates/transformers/tests/data/encoders/bert-sequence").display().to_string();
    fs::write(folder.join("pages.jsonl"), [0, 1, 2, 3].map(page).join("\n")).unwrap();
    fs::write(folder.join("nq-dev-kilt.jsonl"), [0, 1, 2, 3].map(question).join("\n")).unwrap();
    let config = format!(
        r#"
workflow = "answer"
name = "r"
[source]
path = "pages.jsonl"
[tasks]
files = ["nq-dev-kilt.jsonl"]
[retriever]
kind = "dense"
model = "questions"
passage-model = '{encoder}'
pooling = "mean"
similarity = "inner-product"
[generator]
kind = "{kind}"
model = "trained"
prompt.passages = 2
prompt.max-tokens = 40
generation.max-new-tokens = 6
generation.num-beams = 2
[train]
model = "trained"
question-encoder = '{encoder}'
[train.examples]
files = ["nq-dev-kilt.jsonl"]
[train.shape]
d-model = 32
d-ff = 64
d-kv = 8
heads = 4
encoder-layers = 1
decoder-layers = 1
vocabulary = 300
[train.optimizer]
steps = 80
tokens-per-batch = 320
learning-rate = 3e-3
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

/// The folders of dense indexes.
fn indexes(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder.join("indexes")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("dense-")).collect()
}

#[test]
fn rag_training_changes_both_models_and_keeps_the_index() {
    for kind in ["rag-token", "rag-sequence"] {
        let folder = tempfile::tempdir().unwrap();
        write_inputs(folder.path(), kind);
        let output = run(folder.path(), &["train", "c.toml", "--json"]);
        let trained: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(trained["best"][1].as_f64().unwrap() > 0.99, "{kind}: {trained}");
        let before = indexes(folder.path());
        run(folder.path(), &["run", "c.toml"]);
        let report = fs::read_to_string(folder.path().join("runs/r/report.json")).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        // A run with both written folders has the score of the best validation.
        assert_eq!(report["tasks"][0]["scores"]["answer"].as_f64(), trained["best"][1].as_f64(), "{report}");
        assert_eq!((before.len(), indexes(folder.path())), (1, before));
        let read = |path: &Path| fs::read(path.join("model.safetensors")).unwrap();
        let start = root().join("crates/transformers/tests/data/encoders/bert-sequence");
        assert_ne!(read(&folder.path().join("questions")), read(&start));
        assert!(folder.path().join("questions/1_Pooling/config.json").is_file());
        // A training does not resume with other options.
        let faster = ["-q", "train", "c.toml", "train.optimizer.learning-rate=0.01"];
        let output = sporran(folder.path(), &faster).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        let expected = "`train.optimizer.learning-rate` is 0.01 now and was 0.003 then";
        assert!(errors(&output).contains(expected), "{}", errors(&output));
    }
}

#[test]
fn a_retriever_that_rag_cannot_train_with_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path(), "rag-token");
    for (change, message) in [
        ("retriever.similarity=\"cosine\"", "`retriever.similarity`: expected `inner-product`"),
        ("train.question-encoder=\"none\"", "none"),
        ("train.optimizer.label-smoothing=0.1", "label-smoothing"),
    ] {
        let output = sporran(folder.path(), &["-q", "train", "c.toml", change]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{change}: {}", errors(&output));
        assert!(errors(&output).contains(message), "{change}: {}", errors(&output));
    }
    let path = folder.path().join("c.toml");
    let config = fs::read_to_string(&path).unwrap();
    let passages = config.lines().find(|line| line.starts_with("passage-model")).unwrap().to_owned();
    fs::write(&path, config.replace(&passages, "")).unwrap();
    let output = sporran(folder.path(), &["-q", "train", "c.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("`retriever.passage-model`: is missing"), "{}", errors(&output));
}

const NAMES: [&str; 4] = ["Ada", "Ben", "Cleo", "Dan"];
const WORKS: [&str; 4] = ["books", "songs", "films", "ships"];

/// A page with two sentences; the second holds the answer.
fn biography(at: usize) -> String {
    let (who, what) = (NAMES[at], WORKS[at]);
    format!(
        r#"{{"wikipedia_id":"{at}","wikipedia_title":"{who}","text":["{who}","{who} lives here. {who} makes {what}."]}}"#
    )
}

fn turn(at: usize) -> String {
    let (who, what) = (NAMES[at], WORKS[at]);
    let start = format!("{who} lives here. ").len();
    let end = start + format!("{who} makes {what}.").len();
    format!(
        r#"{{"id":"{at}","input":"I know them all.\nAnd what does {who} do?","output":[{{"answer":"{who} makes {what}.","provenance":[{{"wikipedia_id":"{at}","start_paragraph_id":1,"start_character":{start},"end_paragraph_id":1,"end_character":{end}}}]}}]}}"#
    )
}

fn dialogues(folder: &Path) {
    fs::write(folder.join("pages.jsonl"), [0, 1, 2, 3].map(biography).join("\n")).unwrap();
    fs::write(folder.join("wow-dev-kilt.jsonl"), [0, 1, 2, 3].map(turn).join("\n")).unwrap();
    let config = r#"
workflow = "answer"
name = "r"
[source]
path = "pages.jsonl"
[tasks]
files = ["wow-dev-kilt.jsonl"]
[retriever]
kind = "bm25"
[generator]
kind = "memnet"
model = "trained"
prompt.passages = 1
generation.max-new-tokens = 12
[train]
model = "trained"
add-gold = true
[train.knowledge]
dropout = 0.0
[train.examples]
files = ["wow-dev-kilt.jsonl"]
[train.shape]
d-model = 32
d-ff = 64
d-kv = 8
heads = 4
encoder-layers = 1
decoder-layers = 1
vocabulary = 300
[train.optimizer]
steps = 150
tokens-per-batch = 400
learning-rate = 5e-3
warmup-steps = 10
"#;
    fs::write(folder.join("c.toml"), config).unwrap();
}

#[test]
fn a_memory_network_learns_to_select_the_sentence() {
    let folder = tempfile::tempdir().unwrap();
    dialogues(folder.path());
    let trained: Value =
        serde_json::from_slice(&run(folder.path(), &["train", "c.toml", "--json"]).stdout).unwrap();
    assert!(trained["best"][1].as_f64().unwrap() > 0.99, "{trained}");
    run(folder.path(), &["run", "c.toml"]);
    let report = fs::read_to_string(folder.path().join("runs/r/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    // The F1 of answers counts only if the selected page is the gold page.
    assert!(report["tasks"][0]["scores"]["kilt"].as_f64().unwrap() > 0.99, "{report}");
    let output = run(folder.path(), &["explain", "c.toml", "--id", "2", "--json"]);
    let explanation: Value = serde_json::from_slice(&output.stdout).unwrap();
    let prompts: Vec<&str> =
        explanation["prompts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!(prompts.len(), 3, "{prompts:?}");
    assert!(prompts[0].ends_with("what does Cleo do?") && prompts[2].ends_with("Cleo makes films."));

    let arguments = ["-q", "train", "c.toml", "name=s", "train.knowledge.weight=2"];
    let wrong = sporran(folder.path(), &arguments).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{}", errors(&wrong));
    assert!(errors(&wrong).contains("knowledge.weight"), "{}", errors(&wrong));
}

/// A page whose first paragraph is evidence and whose second is not.
fn author(at: usize) -> String {
    let (who, what) = (WHO[at], WHAT[at]);
    format!(
        r#"{{"wikipedia_id":"{at}","wikipedia_title":"{who}","text":["{who}","The {who} wrote the {what}.","She lives in the city."]}}"#
    )
}

fn claim(at: usize) -> String {
    let (who, what, label) = (WHO[at], WHAT[at], ["SUPPORTS", "REFUTES"][at % 2]);
    let end = format!("The {who} wrote the {what}.").len();
    format!(
        r#"{{"id":"{at}","input":"The {who} wrote","output":[{{"answer":"{label}","provenance":[{{"wikipedia_id":"{at}","start_paragraph_id":1,"start_character":0,"end_paragraph_id":1,"end_character":{end}}}]}}]}}"#
    )
}

/// A verifier of claims that starts from a tiny encoder.
fn claims(folder: &Path, stages: &str, train: &str) {
    let encoder = root().join("crates/transformers/tests/data/encoders/bert-sequence").display().to_string();
    fs::write(folder.join("pages.jsonl"), [0, 1, 2, 3].map(author).join("\n")).unwrap();
    fs::write(folder.join("fever-dev-kilt.jsonl"), [0, 1, 2, 3].map(claim).join("\n")).unwrap();
    let config = format!(
        r#"
workflow = "answer"
name = "r"
[tasks]
files = ["fever-dev-kilt.jsonl"]
{stages}
[train]
model = "trained"
from = '{encoder}'
{train}
[train.examples]
files = ["fever-dev-kilt.jsonl"]
[train.optimizer]
epochs = 3
tokens-per-batch = 200
learning-rate = 1e-3
warmup-steps = 1
"#
    );
    fs::write(folder.join("c.toml"), config).unwrap();
}

/// Trains and runs `c.toml`. The run has the accuracy of the best validation. Returns the predictions.
fn verified(folder: &Path) -> Vec<Value> {
    let trained: Value = serde_json::from_slice(&run(folder, &["train", "c.toml", "--json"]).stdout).unwrap();
    run(folder, &["run", "c.toml"]);
    let report = fs::read_to_string(folder.join("runs/r/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["tasks"][0]["scores"]["answer"].as_f64(), trained["best"][1].as_f64(), "{report}");
    let text = fs::read_to_string(folder.join("runs/r/predictions/fever-dev-kilt.jsonl")).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for record in &records {
        let answer = record["output"][0]["answer"].as_str().unwrap();
        assert!(["SUPPORTS", "REFUTES"].contains(&answer), "{record}");
    }
    records
}

#[test]
fn a_verifier_can_read_passages_in_training_and_first_sentences_in_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let stages = "[source]\npath = \"pages.jsonl\"\nsplit = \"paragraph\"\n[retriever]\nkind = \"bm25\"\n[generator]\n\
                  kind = \"verifier\"\nmodel = \"trained\"\npassages = 6\nmax-tokens = 24\n";
    claims(folder.path(), stages, "evidence = \"passage\"\nnegatives = 1\npage-negatives = 1");
    let records = verified(folder.path());
    assert!(records.iter().all(|record| !record["output"][0]["provenance"][0].is_null()), "{records:?}");
    let output =
        sporran(folder.path(), &["-q", "train", "c.toml", "train.page-negatives=2"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(
        errors(&output).contains("`train.page-negatives` is 2 now and was 1 then"),
        "{}",
        errors(&output)
    );
}

#[test]
fn a_verifier_can_read_claims_alone() {
    let folder = tempfile::tempdir().unwrap();
    claims(
        folder.path(),
        "[generator]\nkind = \"verifier\"\nmodel = \"trained\"\nclaim-only = true\nmax-tokens = 16\n",
        "",
    );
    let records = verified(folder.path());
    assert_eq!(records.len(), 4);
    assert!(records.iter().all(|record| record["output"][0]["provenance"] == serde_json::json!([])));
}
