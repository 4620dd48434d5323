//! Data sets from the shell: `convert map` from their original files, and `describe`.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::common::{errors, json as printed, root, sporran};

/// Builds a passage store of two pages, and returns its folder.
fn store(folder: &Path) -> String {
    let pages = [
        r#"{"wikipedia_id":"1","wikipedia_title":"Berlin","text":["Berlin","Berlin is the capital of Germany."]}"#,
        r#"{"wikipedia_id":"3","wikipedia_title":"Oslo","text":["Oslo","Oslo is the capital of Norway."],"anchors":[{"text":"Norway","href":"Berlin","paragraph_id":1,"start":23,"end":29}]}"#,
    ];
    fs::write(folder.join("pages.jsonl"), pages.join("\n")).unwrap();
    fs::write(folder.join("tasks.jsonl"), r#"{"id":1,"input":"q"}"#).unwrap();
    let config = "workflow = \"answer\"\nname = \"d\"\n[source]\npath = \"pages.jsonl\"\n[tasks]\nfiles = [\"tasks.jsonl\"]\n[retriever]\nkind = \"bm25\"\n";
    fs::write(folder.join("d.toml"), config).unwrap();
    let output = sporran(folder, &["-q", "index", "d.toml"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let mut entries = fs::read_dir(folder.join("indexes")).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.to_string_lossy().contains("store-")).unwrap().display().to_string()
}

/// Calls `convert map`. Returns the exit code, standard error, and the records.
fn map(
    folder: &Path,
    store: &str,
    output: &str,
    split: &str,
    rest: &[&str],
) -> (Option<i32>, String, Vec<Value>) {
    let first = ["convert", "map", "--store", store, "--split", split, "--output", output];
    let called = sporran(folder, &[&first, rest].concat()).output().unwrap();
    let text = fs::read_to_string(folder.join(output)).unwrap_or_default();
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (called.status.code(), errors(&called), records)
}

#[test]
fn original_files_become_records_that_describe_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let store = store(path);
    // WNED: the documents are divided into halves.
    fs::create_dir(path.join("RawText")).unwrap();
    fs::write(path.join("RawText/a"), "In Oslo and in Berlin.").unwrap();
    fs::write(path.join("RawText/b"), "In Oslo and in Berlin.").unwrap();
    let xml = "<w><document docName=\"a\">\
        <annotation><mention>Oslo</mention><wikiName>Oslo</wikiName><offset>3</offset><length>4</length></annotation>\
        </document><document docName=\"b\"><annotation><mention>Berlin</mention><wikiName>Berlin</wikiName><offset>15</offset><length>6</length></annotation>\
        </document></w>";
    fs::write(path.join("w.xml"), xml).unwrap();
    let mut inputs = Vec::new();
    for (split, output) in [("dev", "wned-dev-kilt.jsonl"), ("test", "wned-test_without_answers-kilt.jsonl")]
    {
        let rest = ["--from", "wned", "--seed", "1", "--texts", "RawText", "--", "w.xml"];
        let (code, message, records) = map(path, &store, output, split, &rest);
        assert_eq!((code, records.len()), (Some(0), 1), "{message}");
        let title = &records[0]["output"][0]["provenance"][0]["title"];
        assert_eq!(&records[0]["output"][0]["answer"], title);
        inputs.push(records[0]["input"].as_str().unwrap().to_owned());
    }
    inputs.sort();
    assert_eq!(
        inputs,
        ["In Oslo and in [START_ENT] Berlin [END_ENT] .", "In [START_ENT] Oslo [END_ENT] and in Berlin."]
    );
    let both = ["wned-dev-kilt.jsonl", "wned-test_without_answers-kilt.jsonl"];
    let found = printed(path, &["describe", both[0], both[1], "--json"]);
    let row = &found["datasets"][0];
    assert_eq!([&row["train"], &row["dev"], &row["test"]], [&Value::Null, &json!(1), &json!(1)]);
    assert_eq!(found["pages"], json!({"pages": 2, "by_datasets": [2]}));

    // T-REx: labels and aliases come from a table.
    let name = |id: &str| json!({"uri": format!("http://www.wikidata.org/entity/{id}"), "surfaceform": id});
    let triple =
        json!({"subject": name("Q1"), "predicate": name("P1"), "object": name("Q2"), "sentence_id": 0});
    let document = json!([{"title": "Oslo", "text": "Oslo is the capital of Norway.", "sentences_boundaries": [[0, 30]], "triples": [triple]}]);
    fs::write(path.join("t.json"), document.to_string()).unwrap();
    fs::write(path.join("names.tsv"), "Q1\tOslo\nQ2\tNorway\tNorge\nP1\tcapital of\n").unwrap();
    let rest =
        ["--from", "trex", "--min-facts", "1", "--held-out", "0", "--names", "names.tsv", "--", "t.json"];
    let (code, message, records) = map(path, &store, "trex-train-kilt.jsonl", "train", &rest);
    assert_eq!((code, records.len()), (Some(0), 1), "{message}");
    assert_eq!((&records[0]["id"], &records[0]["input"]), (&"Q1_P1".into(), &"Oslo [SEP] capital of".into()));
    let outputs = &records[0]["output"];
    assert_eq!((&outputs[0]["answer"], &outputs[1]["answer"]), (&"Norway".into(), &"Norge".into()));
    assert_eq!(outputs[0]["provenance"][0]["bleu_score"], 1.0);

    // The summary of a mapping is described too.
    let call = "convert map --from trex --min-facts 1 --held-out 1 --split dev --output o --json -q";
    let mut arguments: Vec<&str> = call.split(' ').collect();
    arguments.extend(["--store", &store, "t.json"]);
    let output = sporran(path, &arguments).output().unwrap();
    fs::write(path.join("summary.json"), &output.stderr).unwrap();
    let found = printed(path, &["describe", "summary.json", "--json"]);
    assert_eq!((&found["layout"], &found["mean_discarded"]), (&"mapping".into(), &json!(0.0)));
    assert_eq!(found["mappings"][0]["histogram"], json!([0, 0, 0, 0, 0, 0, 0, 0, 0, 1]));

    // The links of the source are records of their own.
    let rest = ["--from", "hyperlinks", "pages.jsonl"];
    let all =
        ["train", "dev", "test"].map(|split| map(path, &store, &format!("{split}.jsonl"), split, &rest));
    let records: Vec<&Value> = all.iter().flat_map(|(_, _, records)| records).collect();
    assert_eq!(records.len(), 1, "{all:?}");
    assert_eq!(records[0]["input"], "Oslo is the capital of [START_ENT] Norway [END_ENT] .");
    assert_eq!(records[0]["output"][0]["answer"], "Berlin");
}

#[test]
fn wrong_files_and_options_end_with_code_2_and_no_output() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let store = store(path);
    fs::write(path.join("a.jsonl"), "\n{\"example_id\":1,\"question_text\":7}\n").unwrap();
    for (rest, expected) in [
        (&["--from", "nq", "a.jsonl"][..], "a.jsonl:2: field `question_text`"),
        (&["--from", "nq", "--seed", "3", "a.jsonl"], "the layout `nq` has no option `seed`"),
        (&["--from", "wned", "a.jsonl"], "needs one folder of raw texts"),
        (&["--from", "none", "a.jsonl"], "expected one of `fever`"),
        (&["--from", "trex", "--min-facts", "0", "a.jsonl"], "expected a number of at least 1"),
        (&["--from", "hyperlinks", "--share", "2", "pages.jsonl"], "at most 1, found 2"),
    ] {
        let (code, message, _) = map(path, &store, "out.jsonl", "dev", rest);
        assert_eq!(code, Some(2), "{rest:?}: {message}");
        assert!(message.contains(expected), "{message} lacks {expected}");
        assert!(!path.join("out.jsonl").exists(), "{rest:?}");
    }
    fs::write(path.join("x.json"), "{\"x\": 1}").unwrap();
    let output = sporran(path, &["describe", "tasks.jsonl", "x.json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        errors(&output).contains("x.json: its first value has no layout that is known"),
        "{}",
        errors(&output)
    );
}

#[test]
fn describe_prints_the_figures_of_table_6() {
    let folder = tempfile::tempdir().unwrap();
    let kilt = root().join("examples/minikilt/kilt");
    let [nq, hotpotqa] =
        ["nq-dev-kilt.jsonl", "hotpotqa-dev-kilt.jsonl"].map(|name| kilt.join(name).display().to_string());
    let found = printed(folder.path(), &["describe", &nq, &hotpotqa, "--json"]);
    assert_eq!(found["layout"], "kilt");
    let averages =
        |row: &Value| ["dev", "aps", "apn", "app", "several_pages", "aan"].map(|key| row[key].clone());
    // 225 sets of one span and 431 answers in 160 records.
    let row = &found["datasets"][0];
    assert_eq!(
        averages(row),
        [json!(160), json!(1.0), json!(1.40625), json!(1.0), json!(0.0), json!(2.69375)]
    );
    assert_eq!(row["bleu"]["histogram"], json!([0, 0, 0, 0, 0, 0, 0, 0, 0, 225]));
    assert_eq!((&row["bleu"]["mean"], &row["bleu"]["discarded"]), (&json!(1.0), &json!(0.0)));
    let row = &found["datasets"][1];
    assert_eq!(averages(row), [json!(160), json!(2.0), json!(1.0), json!(2.0), json!(1.0), json!(1.0)]);
    assert_eq!(found["total"], json!({"train": 0, "dev": 320, "test": 0, "records": 320}));
    assert_eq!(found["pages"], json!({"pages": 209, "by_datasets": [128, 81]}));
    let output = sporran(folder.path(), &["describe", &nq, "--layout", "kilt"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("130 pages with knowledge") && text.contains("nq: mean BLEU 1.000"), "{text}");
}
