//! A transformer memory network from a config: it is trained, answers from one piece of what is known, and shows it first.

mod common;

use std::{fs, path::Path, process::Output};

use common::{errors, sporran};
use serde_json::Value;

const WHO: [&str; 4] = ["Ada", "Ben", "Cleo", "Dan"];
const WHAT: [&str; 4] = ["books", "songs", "films", "ships"];

/// A page with two sentences, of which the second answers.
fn page(at: usize) -> String {
    let (who, what) = (WHO[at], WHAT[at]);
    format!(
        r#"{{"wikipedia_id":"{at}","wikipedia_title":"{who}","text":["{who}","{who} lives here. {who} makes {what}."]}}"#
    )
}

fn turn(at: usize) -> String {
    let (who, what) = (WHO[at], WHAT[at]);
    let start = format!("{who} lives here. ").len();
    let end = start + format!("{who} makes {what}.").len();
    format!(
        r#"{{"id":"{at}","input":"I know them all.\nAnd what does {who} do?","output":[{{"answer":"{who} makes {what}.","provenance":[{{"wikipedia_id":"{at}","start_paragraph_id":1,"start_character":{start},"end_paragraph_id":1,"end_character":{end}}}]}}]}}"#
    )
}

fn world(folder: &Path) {
    fs::write(folder.join("pages.jsonl"), [0, 1, 2, 3].map(page).join("\n")).unwrap();
    fs::write(folder.join("wow-dev-kilt.jsonl"), [0, 1, 2, 3].map(turn).join("\n")).unwrap();
    let config = r#"
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

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let output = sporran(folder, &[&["-q"], arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    output
}

#[test]
fn a_memory_network_learns_which_sentence_to_answer_from() {
    let folder = tempfile::tempdir().unwrap();
    world(folder.path());
    let trained: Value =
        serde_json::from_slice(&run(folder.path(), &["train", "c.toml", "--json"]).stdout).unwrap();
    assert!(trained["best"][1].as_f64().unwrap() > 0.99, "{trained}");
    run(folder.path(), &["run", "c.toml"]);
    let report = fs::read_to_string(folder.path().join("runs/r/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    // F1 of the answers, which counts only where the page that was attended to is the gold one.
    assert!(report["tasks"][0]["scores"]["kilt"].as_f64().unwrap() > 0.99, "{report}");
    let output = run(folder.path(), &["explain", "c.toml", "--id", "2", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let prompts: Vec<&str> =
        told["prompts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!(prompts.len(), 3, "{prompts:?}");
    assert!(prompts[0].ends_with("what does Cleo do?") && prompts[2].ends_with("Cleo makes films."));

    let arguments = ["-q", "train", "c.toml", "name=s", "train.knowledge.weight=2"];
    let wrong = sporran(folder.path(), &arguments).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{}", errors(&wrong));
    assert!(errors(&wrong).contains("knowledge.weight"), "{}", errors(&wrong));
}
