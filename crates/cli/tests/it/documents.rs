//! Document relations and slot filling from the shell.

use std::{fs, path::Path};

use crate::common::encoder::encoder;
use crate::common::{errors, json, root, sporran};
use serde_json::{Value, json};

/// Documents of two sentences in DocRED's layout: a person was born in one place and lives in another.
fn docred(folder: &Path, name: &str, count: usize) {
    let people = ["Ann Lee", "Bob Ray", "Eve Poe", "Max Orr", "Ida Fox"];
    let places = ["Rome", "Oslo", "Lima", "Bonn"];
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let make = |at: usize| {
        let (who, born, lives) =
            (people[at % people.len()], places[at % places.len()], places[(at + 1) % places.len()]);
        json!({
            "title": format!("d{at}"),
            "sents": [words(&format!("{who} was born in {born} .")), words(&format!("She lives in {lives} now ."))],
            "vertexSet": [
                [{"name": who, "pos": [0, 2], "sent_id": 0, "type": "PER"}],
                [{"name": born, "pos": [5, 6], "sent_id": 0, "type": "LOC"}],
                [{"name": lives, "pos": [3, 4], "sent_id": 1, "type": "LOC"}],
            ],
            "labels": [{"h": 0, "t": 1, "r": "P19", "evidence": [0]}, {"h": 0, "t": 2, "r": "P551", "evidence": [0, 1]}],
        })
    };
    fs::write(folder.join(name), Value::Array((0..count).map(make).collect()).to_string()).unwrap();
}

fn call_json(folder: &Path, arguments: &[String]) -> Value {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    json(folder, &arguments)
}

fn config(name: &str) -> String {
    root().join("configs").join(name).display().to_string()
}

#[test]
fn document_relations_are_trained_predicted_and_scored() {
    let folder = tempfile::tempdir().unwrap();
    docred(folder.path(), "train.json", 30);
    docred(folder.path(), "test.json", 7);
    let from = encoder(folder.path(), &fs::read_to_string(folder.path().join("train.json")).unwrap());
    let call = |verb: &str| {
        let overrides = [
            format!("document-relations.training.from={from}"),
            r#"document-relations.training.files=["train.json"]"#.into(),
            r#"document-relations.files=["test.json"]"#.into(),
            "document-relations.training.hidden-size=24".into(),
            "document-relations.training.group-size=4".into(),
            "document-relations.training.optimizer={epochs=6, tokens-per-batch=160, learning-rate=1e-3, warmup-steps=5}".into(),
        ];
        let before = ["--quiet".to_owned(), verb.into(), config("docred.toml"), "--json".into()];
        call_json(folder.path(), &[before.to_vec(), overrides.to_vec()].concat())
    };
    let trained = call("train");
    assert!(trained["best"][1].as_f64().unwrap() > 0.9, "{trained}");
    // A second call skips the training.
    assert_eq!(call("train"), trained);
    let report = call("run");
    let scores = &report["files"]["test"];
    assert!(scores["f1"].as_f64().unwrap() > 0.9, "{report}");
    // The training documents state every relation of the test documents by the same names.
    assert_eq!(scores["ign_f1"], 0.0, "{report}");
    let predictions = folder.path().join("runs/redocred/predictions");
    let again = ["evaluate", "relations", "--gold", "test.json", "--guess"].map(String::from);
    let guess = predictions.join("test.json").display().to_string();
    let again = call_json(folder.path(), &[again.to_vec(), vec![guess, "--json".into()]].concat());
    assert_eq!(again["f1"], scores["f1"]);
    let records = fs::read_to_string(predictions.join("test.jsonl")).unwrap();
    let first: Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
    assert_eq!(first["meta"]["document"], "d0");
    assert_eq!(first["output"][0]["provenance"], serde_json::json!([]));
}

#[test]
fn errors_in_documents_name_file_and_field() {
    let folder = tempfile::tempdir().unwrap();
    docred(folder.path(), "train.json", 3);
    let wrong = fs::read_to_string(folder.path().join("train.json")).unwrap().replace("\"t\":2", "\"t\":9");
    fs::write(folder.path().join("train.json"), wrong).unwrap();
    let from = format!("document-relations.training.from={}", encoder(folder.path(), "Ann"));
    let files = r#"document-relations.training.files=["train.json"]"#;
    let path = config("docred.toml");
    let arguments = ["train", &path, &from, files, r#"document-relations.files=["train.json"]"#];
    let output = sporran(folder.path(), &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("[0].labels[1].t"), "{}", errors(&output));
    assert!(!folder.path().join("runs").exists(), "something was written");
    let check = ["config", "check", &path, "document-relations.training.group-size=5"];
    let output = sporran(folder.path(), &check).output().unwrap();
    let message = errors(&output);
    assert!(
        message.contains("document-relations.training.group-size") && message.contains("divisor"),
        "{message}"
    );
}

/// Six relations with one question each; every third sentence holds no answer.
fn zsre() -> String {
    let kinds = ["author", "painter", "singer", "founder", "owner", "builder"];
    let names = ["Ann Lee", "Bob Ray", "Eve Poe", "Max Orr", "Ida Fox"];
    let line = |at: usize| {
        let (kind, name, thing) = (kinds[at % kinds.len()], names[at % names.len()], format!("Work {at}"));
        if (at / kinds.len()).is_multiple_of(3) {
            format!("{kind}\tWho is the {kind} of XXX?\t{thing}\t{thing} is old and well known.\n")
        } else {
            format!("{kind}\tWho is the {kind} of XXX?\t{thing}\tThe {kind} of {thing} is {name}.\t{name}\n")
        }
    };
    (0..120).map(line).collect()
}

#[test]
fn questions_about_unseen_relations_get_an_answer_or_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("questions.tsv"), zsre()).unwrap();
    let from = encoder(folder.path(), &zsre());
    let call = |verb: &str| {
        let overrides = [
            format!("slot-filling.training.from={from}"),
            r#"slot-filling.training.files=["questions.tsv"]"#.into(),
            r#"slot-filling.files=["questions.tsv"]"#.into(),
            "slot-filling.training.validation-share=0.2".into(),
            "slot-filling.training.optimizer={epochs=30, tokens-per-batch=400, learning-rate=2e-3, warmup-steps=5}".into(),
        ];
        let before = ["--quiet".to_owned(), verb.into(), config("zsre.toml"), "--json".into()];
        call_json(folder.path(), &[before.to_vec(), overrides.to_vec()].concat())
    };
    let trained = call("train");
    assert_eq!(trained["relations"], json!([4, 1, 1]));
    let report = call("run");
    let scores = &report["files"]["questions"];
    assert_eq!(scores["unseen"]["questions"], 20);
    assert_eq!(scores["seen"]["relations"], 5);
    assert!(scores["unseen"]["f1"].as_f64().unwrap() > 0.8, "{report}");
    let records = fs::read_to_string(folder.path().join("runs/zsre/predictions/questions.jsonl")).unwrap();
    let of = |at: usize| -> Value { serde_json::from_str(records.lines().nth(at).unwrap()).unwrap() };
    // The second question of the first six, whose sentences hold no answer, and the second of the next six.
    let empty = json!([{ "answer": "", "provenance": [] }]);
    assert_eq!((&of(1)["input"], &of(1)["output"]), (&json!("Work 1 [SEP] painter"), &empty));
    assert_eq!(of(7)["output"][0]["answer"], "Eve Poe");
    assert_eq!(of(7)["meta"]["start"], 25);
}

#[test]
fn errors_in_questions_name_file_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("questions.tsv"), "author\tWho wrote XXX?\tEmma\tIt is.\nauthor\tWho?\n")
        .unwrap();
    let from = format!("slot-filling.training.from={}", encoder(folder.path(), "Emma"));
    let path = config("zsre.toml");
    let files = r#"slot-filling.training.files=["questions.tsv"]"#;
    let arguments = ["train", &path, &from, files, r#"slot-filling.files=["questions.tsv"]"#];
    let output = sporran(folder.path(), &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("questions.tsv:2: field `entity`"), "{}", errors(&output));
    assert!(!folder.path().join("runs").exists(), "something was written");
}
