//! Collections of other systems from the shell: an index without tasks, a run, and the scores of its ranking.

use std::{fs, path::Path};

use serde_json::Value;

use crate::common::{errors, json, sporran};

/// A data set of BEIR, with ids that the format of runs cannot hold, and documents without a title.
fn write_beir(folder: &Path) {
    let corpus = [
        r#"{"_id":"doc 1","title":"Tea","text":"Tea is hot."}"#,
        r#"{"_id":"é 2","title":"","text":"Whales sing near the bay."}"#,
        r#"{"_id":"100%","text":"Copper coins are heavy."}"#,
        r#"{"_id":"d4","text":"Copper coins are heavy."}"#,
    ];
    let queries = [
        r#"{"_id":"q 1","text":"who sings near the bay?"}"#,
        r#"{"_id":"q2","text":"heavy copper coins"}"#,
        r#"{"_id":"q3","text":"a query of another split"}"#,
    ];
    fs::create_dir_all(folder.join("toy/qrels")).unwrap();
    fs::write(folder.join("toy/corpus.jsonl"), corpus.join("\n")).unwrap();
    fs::write(folder.join("toy/queries.jsonl"), queries.join("\n")).unwrap();
    let qrels = "query-id\tcorpus-id\tscore\nq 1\té 2\t1\nq2\td4\t2\nq2\tdoc 1\t1\n";
    fs::write(folder.join("toy/qrels/test.tsv"), qrels).unwrap();
    let source = "workflow = \"answer\"\nname = \"r\"\n[source]\npath = \"toy\"\nformat = \"beir\"\nsplit = \"page\"\n";
    let retriever = "[retriever]\nkind = \"bm25\"\n";
    let tasks = "[tasks]\nqueries = \"toy/queries.jsonl\"\nqrels = \"toy/qrels/test.tsv\"\n";
    fs::write(folder.join("index.toml"), format!("{source}{retriever}")).unwrap();
    fs::write(folder.join("c.toml"), format!("{source}{retriever}{tasks}")).unwrap();
}

#[test]
fn a_data_set_of_beir_is_indexed_run_and_scored() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_beir(folder);
    let built = json(folder, &["-q", "index", "index.toml", "--json"]);
    assert_eq!((&built["pages"], &built["passages"]), (&4.into(), &4.into()));
    let report = json(folder, &["-q", "run", "c.toml", "--json"]);
    let task = &report["tasks"][0];
    assert_eq!((&task["file"], &task["records"]), (&"test.jsonl".into(), &2.into()));
    // The two equal passages keep the order of their ids in the store.
    let gain = |grade: f64, rank: f64| grade / (rank + 1.0).log2();
    let second = gain(2.0, 2.0) / (gain(2.0, 1.0) + gain(1.0, 2.0));
    let ndcg = task["measures"]["nDCG@10"].as_f64().unwrap();
    assert!((ndcg - (1.0 + second) / 2.0).abs() < 1e-9, "{report}");
    assert_eq!(task["measures"]["R@100"].as_f64(), Some(0.75));
    let run = fs::read_to_string(folder.join("runs/r/retrieval/test.trec")).unwrap();
    let lines: Vec<Vec<&str>> = run.lines().map(|line| line.split(' ').collect()).collect();
    let ids: Vec<(&str, &str)> = lines.iter().map(|line| (line[0], line[2])).collect();
    assert_eq!(ids, [("q%201", "é%202"), ("q2", "100%25"), ("q2", "d4")]);
    let scores: Vec<f32> = lines[1..].iter().map(|line| line[4].parse().unwrap()).collect();
    assert!(scores[0] > scores[1] && lines[1][5] == "r/pages");

    let evaluate =
        ["evaluate", "trec", "--qrels", "toy/qrels/test.tsv", "--run", "runs/r/retrieval/test.trec"];
    let more = ["--measures", "nDCG@10,RR(rel=2)", "--per-query", "--json"];
    let found = json(folder, &[&evaluate[..], &more].concat());
    assert_eq!(found["nDCG@10"].as_f64(), Some(ndcg));
    assert_eq!(found["per_query"]["q2"]["RR(rel=2)"].as_f64(), Some(0.5));
    let same = ["--against", "runs/r/retrieval/test.trec", "--rounds", "100", "--json"];
    let compared = json(folder, &[&evaluate[..], &same].concat());
    assert_eq!(compared["comparison"]["AP"]["p_value"].as_f64(), Some(1.0));
    // A tabular collection with the same queries and judgements ranks the same documents.
    fs::write(folder.join("collection.tsv"), "doc 1\tTea is hot.\né 2\tWhales sing near the bay.\n").unwrap();
    fs::write(folder.join("queries.tsv"), "q 1\twho sings near the bay?\n").unwrap();
    let overrides = ["source.format=msmarco", "source.path=collection.tsv", "tasks.queries=queries.tsv"];
    let call = [&["-q", "run", "c.toml", "name=m", "--json"], &overrides[..]].concat();
    let report = json(folder, &call);
    assert_eq!(report["tasks"][0]["records"], Value::from(1));
}

#[test]
fn passages_are_named_by_page_and_place() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_beir(folder);
    let call = ["-q", "retrieve", "c.toml", "evidence.run-documents=passage", "--json"];
    json(folder, &call);
    let run = fs::read_to_string(folder.join("runs/r-retrieval/retrieval/test.trec")).unwrap();
    assert!(run.contains(" Q0 é%202#0 1 ") && run.ends_with(" r-retrieval\n"), "{run}");
}

#[test]
fn mistakes_name_the_file_and_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_beir(folder);
    let fails = |arguments: &[&str], expected: &str| {
        let output = sporran(folder, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(errors(&output).contains(expected), "{arguments:?}: {}", errors(&output));
    };
    fails(&["-q", "run", "c.toml", "evaluation.measures=[\"nDCG\", \"P\"]"], "evaluation.measures");
    fails(&["-q", "run", "c.toml", "source.format=anserini"], "corpus.jsonl:1: missing field `id`");
    fails(&["-q", "index", "index.toml", "source.format=bier"], "beir");
    fails(&["-q", "run", "index.toml"], "tasks");
    fs::write(folder.join("twice.jsonl"), "{\"_id\":\"a\",\"text\":\"x\"}\n{\"_id\":\"a\",\"text\":\"y\"}\n")
        .unwrap();
    fails(
        &["-q", "index", "index.toml", "source.path=twice.jsonl"],
        "twice.jsonl:2: field `id`: `a` stands on line 1 already",
    );
}
