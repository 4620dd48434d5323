//! Prediction files of any workflow, checked from the shell.

use std::{fs, path::Path};

use crate::common::{errors, root, sporran};
use serde_json::{Value, json};

/// Builds a store of two pages and returns its folder.
fn store(folder: &Path) -> String {
    let pages = [
        json!({ "wikipedia_id": "7", "wikipedia_title": "Zoë", "text": ["Zoë\n", "She sang.\n"] }),
        json!({ "wikipedia_id": "9", "wikipedia_title": "Ann", "text": ["Ann\n", "She left.\n"] }),
    ];
    fs::write(folder.join("pages.jsonl"), pages.map(|page| page.to_string()).join("\n")).unwrap();
    let config = "workflow = \"answer\"\nname = \"r\"\n[source]\npath = \"pages.jsonl\"\n[tasks]\nfiles = [\"tasks.jsonl\"]\n[retriever]\nkind = \"bm25\"\n";
    fs::write(folder.join("c.toml"), config).unwrap();
    fs::write(folder.join("tasks.jsonl"), "{\"id\":\"q\",\"input\":\"who sang?\"}\n").unwrap();
    let output = sporran(folder, &["-q", "retrieve", "c.toml"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let built = fs::read_dir(folder.join("indexes")).unwrap().map(|entry| entry.unwrap().path());
    let mut stores = built.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("store-"));
    stores.next().unwrap().display().to_string()
}

#[test]
fn submit_check_checks_prediction_files_with_and_without_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let store = store(folder);
    let line = |id: &str, page: &str, end: u64| {
        json!({ "id": id, "output": [{ "answer": "x", "provenance": [{ "wikipedia_id": page, "start_paragraph_id": 1,
            "start_character": 0, "end_paragraph_id": 1, "end_character": end }] }] })
        .to_string()
    };
    let check = |arguments: &[&str], code: i32| -> Value {
        let call = [&["submit", "check", "--json"], arguments].concat();
        let output = sporran(folder, &call).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", errors(&output));
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    };
    fs::write(folder.join("good.jsonl"), [line("a", "7", 9), line("b", "9", 4)].join("\n")).unwrap();
    let answer =
        json!({ "ok": true, "files": { "good.jsonl": [], "runs/r-retrieval/predictions/tasks.jsonl": [] } });
    let own = "runs/r-retrieval/predictions/tasks.jsonl";
    assert_eq!(check(&["good.jsonl", own, "--store", &store], 0), answer);

    fs::write(folder.join("bad.jsonl"), [line("a", "8", 9), line("a", "7", 99)].join("\n")).unwrap();
    let found = |arguments: &[&str]| check(arguments, 2)["files"]["bad.jsonl"].as_array().unwrap().clone();
    let alone = found(&["bad.jsonl"]);
    assert_eq!(alone.len(), 1, "{alone:?}");
    assert!(alone[0].as_str().unwrap().starts_with("bad.jsonl:2: field `id`: expected ids that differ"));
    let with_store = found(&["bad.jsonl", "--store", &store]);
    let place = "field `output[0].provenance[0]";
    for expected in [
        format!("bad.jsonl:1: {place}.wikipedia_id`: expected the id of a page of the source, found `8`"),
        format!("bad.jsonl:2: {place}.end_character`: expected "),
    ] {
        assert!(
            with_store.iter().any(|fault| fault.as_str().unwrap().starts_with(&expected)),
            "{with_store:?}"
        );
    }
    // Gold with one output a record is a file of perfect predictions.
    let gold = root().join("examples/minikilt/kilt/aidayago2-dev-kilt.jsonl").display().to_string();
    assert_eq!(check(&[&gold], 0)["ok"], true);
    // A call needs files, or inputs with predictions.
    check(&[], 2);
    check(&["--inputs", "."], 2);
    check(&["none.jsonl"], 2);
}
