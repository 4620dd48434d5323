//! An annotation from candidates to merged records, from the shell.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::common::{errors, json as printed, sporran};

/// Retrieves for a question about two pages, and returns the folder of their store.
fn store(folder: &Path) -> String {
    let pages = [
        json!({ "wikipedia_id": "7", "wikipedia_title": "Zoë", "text": ["Zoë\n", "She sang.\n"] }),
        json!({ "wikipedia_id": "9", "wikipedia_title": "Ann", "text": ["Ann\n", "She left.\n"] }),
    ];
    fs::write(folder.join("pages.jsonl"), pages.map(|page| page.to_string()).join("\n")).unwrap();
    let config = "workflow = \"answer\"\nname = \"r\"\n[source]\npath = \"pages.jsonl\"\n[tasks]\nfiles = [\"tasks.jsonl\"]\n[retriever]\nkind = \"bm25\"\n";
    fs::write(folder.join("c.toml"), config).unwrap();
    let record = json!({ "id": "q", "input": "who sang?", "output": [{ "answer": "She sang" }] });
    fs::write(folder.join("tasks.jsonl"), format!("{record}\n")).unwrap();
    let output = sporran(folder, &["-q", "retrieve", "c.toml"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let built = fs::read_dir(folder.join("indexes")).unwrap().map(|entry| entry.unwrap().path());
    let mut stores = built.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("store-"));
    stores.next().unwrap().display().to_string()
}

#[test]
fn votes_on_candidates_become_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let store = store(folder);
    // The second system ranks the other page's passage.
    fs::write(folder.join("other.trec"), "q Q0 1 1 1.0 t\n").unwrap();
    let aside = |arguments: &[&str]| -> Value {
        let output = sporran(folder, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
        serde_json::from_str(&errors(&output)).unwrap()
    };
    let made = aside(&[
        "annotate",
        "candidates",
        "--json",
        "--tasks",
        "tasks.jsonl",
        "--system",
        "bm25=runs/r-retrieval/predictions/tasks.jsonl",
        "--system",
        "other=other.trec",
        "--store",
        &store,
        "--output",
        "sheet.csv",
    ]);
    assert_eq!((&made["rows"], &made["gold"]), (&json!(2), &json!(0)));

    // Two of three annotators find the answer on page 7, one on page 9.
    let sheet = fs::read_to_string(folder.join("sheet.csv")).unwrap();
    for (name, sang, left) in [("1.csv", "yes", "no"), ("2.csv", "1", "0"), ("3.csv", "no", "yes")] {
        let voted = sheet.lines().map(|line| match line.strip_suffix(",,") {
            Some(row) if row.ends_with("She sang.") => format!("{row},{sang},\n"),
            Some(row) => format!("{row},{left},\n"),
            None => format!("{line}\n"),
        });
        fs::write(folder.join(name), voted.collect::<String>()).unwrap();
    }
    let found = printed(folder, &["evaluate", "agreement", "--sheets", "--json", "1.csv", "2.csv", "3.csv"]);
    // 1 for the first two annotators, -1 for each of them and the third.
    assert!((found["cohen"].as_f64().unwrap() + 1.0 / 3.0).abs() < 1e-12, "{found}");
    assert!((found["fleiss"]["kappa"].as_f64().unwrap() + 1.0 / 3.0).abs() < 1e-12, "{found}");
    let output = sporran(folder, &["evaluate", "agreement", "1.csv", "2.csv"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("add --sheets"), "{}", errors(&output));

    let merge = ["annotate", "merge", "--json", "--tasks", "tasks.jsonl", "--output", "merged.jsonl"];
    let merged = aside(&[&merge[..], &["1.csv", "2.csv", "3.csv"]].concat());
    assert_eq!(
        (&merged["accepted"], &merged["added"], &merged["written"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let record: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("merged.jsonl")).unwrap()).unwrap();
    let item = &record["output"][1]["provenance"][0];
    assert_eq!((&item["wikipedia_id"], &item["meta"]["votes"]["yes"]), (&json!("7"), &json!(2)));

    let review = ["annotate", "review", "--json", "--tasks", "merged.jsonl", "--store", store.as_str()];
    let reviewed = aside(&[&review[..], &["--output", "review.jsonl"]].concat());
    assert_eq!((&reviewed["records"], &reviewed["listed"]), (&json!(1), &json!(0)));

    fs::write(folder.join("2.csv"), sheet.replace(",,\n", ",perhaps,\n")).unwrap();
    fs::remove_file(folder.join("merged.jsonl")).unwrap();
    let output = sporran(folder, &[&merge[..], &["1.csv", "2.csv", "3.csv"]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = errors(&output);
    assert!(message.contains("2.csv:2: field `vote`: expected `yes` or `no`, found `perhaps`"), "{message}");
    assert!(!folder.join("merged.jsonl").exists());
}
