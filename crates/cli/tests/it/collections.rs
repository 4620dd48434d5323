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
    let report = json(folder, &call);
    let run = fs::read_to_string(folder.join("runs/r-retrieval/retrieval/test.trec")).unwrap();
    assert!(run.contains(" Q0 é%202#0 1 ") && run.ends_with(" r-retrieval\n"), "{run}");
    // The measures are over pages.
    assert_eq!(report["tasks"][0]["measures"]["R@100"].as_f64(), Some(0.75));
}

/// The measures of a retrieval with these overrides.
fn measured(folder: &Path, overrides: &[&str]) -> Value {
    let call = [&["-q", "retrieve", "c.toml", "--json"], overrides].concat();
    json(folder, &call)["tasks"][0]["measures"].clone()
}

#[test]
fn a_query_without_a_hit_counts_0_also_with_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_beir(folder);
    let queries = [r#"{"_id":"n","text":"xylophone"}"#, r#"{"_id":"q 1","text":"who sings near the bay?"}"#];
    fs::write(folder.join("toy/queries.jsonl"), queries.join("\n")).unwrap();
    let qrels = "query-id\tcorpus-id\tscore\nn\tdoc 1\t1\nq 1\té 2\t1\nother\td4\t1\n";
    fs::write(folder.join("toy/qrels/test.tsv"), qrels).unwrap();
    let rank = |overrides: &[&str]| {
        let overrides = [&["evaluation.measures=[\"RR\"]"], overrides].concat();
        measured(folder, &overrides)["RR"].as_f64()
    };
    // Two queries of the file, and a judged one that it lacks.
    assert_eq!(rank(&[]), Some(1.0 / 3.0));
    assert_eq!(rank(&["tasks.limit=1000"]), Some(0.5));
    assert_eq!(rank(&["tasks.limit=1"]), Some(0.0));
    let output = sporran(folder, &["retrieve", "c.toml"]).output().unwrap();
    let expected = "1 of 3 judged queries are not in toy/queries.jsonl and count 0, such as `other`";
    assert!(errors(&output).contains(expected), "{}", errors(&output));
}

#[test]
fn the_document_of_the_query_takes_no_place_of_the_ranking() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_beir(folder);
    // The query's own document is the first hit.
    let corpus = [r#"{"_id":"a","text":"copper coins"}"#, r#"{"_id":"b","text":"copper is a metal"}"#];
    fs::write(folder.join("toy/corpus.jsonl"), corpus.join("\n")).unwrap();
    fs::write(folder.join("toy/queries.jsonl"), r#"{"_id":"a","text":"copper coins"}"#).unwrap();
    fs::write(folder.join("toy/qrels/test.tsv"), "query-id\tcorpus-id\tscore\na\tb\t1\n").unwrap();
    let measures = ["evidence.depth=1", "evidence.limit=1", "evaluation.measures=[\"R@1\"]"];
    assert_eq!(measured(folder, &measures)["R@1"].as_f64(), Some(0.0));
    let without = [&measures[..], &["evaluation.exclude-self=true"]].concat();
    assert_eq!(measured(folder, &without)["R@1"].as_f64(), Some(1.0));
}

#[test]
fn a_report_compares_the_measures_of_judged_queries() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_beir(folder);
    measured(folder, &["name=a"]);
    measured(folder, &["name=b", "tasks.limit=1"]);
    // The first document of the second query goes to the second place.
    measured(folder, &["name=c", "retriever.k1=1.0", "evidence.run-documents=passage"]);
    let runs = ["report", "runs/a-retrieval", "runs/b-retrieval", "runs/c-retrieval"];
    let found = json(folder, &[&runs[..], &["--json"]].concat());
    let score = |system: usize| &found["systems"][system]["tasks"][0]["measures"]["R@100"];
    assert_eq!((score(0)["mean"].as_f64(), score(0)["difference"].is_null()), (Some(0.75), true));
    // The second run has another set of queries.
    assert_eq!((score(1)["mean"].as_f64(), score(1)["difference"].is_null()), (Some(1.0), true));
    assert_eq!(score(2)["difference"], serde_json::json!([0.0, 1.0]));
    let note = "b-retrieval is not tested on test.jsonl: it has 1 record there and a-retrieval has 2.";
    assert_eq!(found["notes"], serde_json::json!([note]));
    let csv = sporran(folder, &[&runs[..], &["--form", "csv"]].concat()).output().unwrap();
    let csv = String::from_utf8_lossy(&csv.stdout).into_owned();
    assert!(csv.contains("c-retrieval,false,R@100,test.jsonl,0.750000,0.000000,1.000000\n"), "{csv}");
}

#[test]
fn weights_are_tuned_by_the_measures_of_the_judgements() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_beir(folder);
    let config = fs::read_to_string(folder.join("c.toml")).unwrap();
    let parts = "[[retriever.parts]]\nkind = \"bm25\"\n[[retriever.parts]]\nkind = \"tfidf\"\n";
    let config = config.replace("kind = \"bm25\"\n", &format!("kind = \"hybrid\"\n{parts}"));
    fs::write(folder.join("h.toml"), config).unwrap();
    let tune = |overrides: &[&str]| {
        let call = [&["-q", "tune", "h.toml", "--show", "1000", "--json"], overrides].concat();
        json(folder, &call).as_array().unwrap().clone()
    };
    // q 1 has its document; q2 has one of two relevant documents in the first two ranks.
    let found = tune(&[]);
    assert_eq!(found.len(), 44);
    assert!(
        found.iter().all(|trial| trial["r_precision"] == 0.75 && trial["recall_at_5"] == 0.75),
        "{found:?}"
    );
    assert!(found.iter().all(|trial| trial["measure"].is_null()));
    let found = tune(&["evaluation.measures=[\"RR(rel=2)\", \"R@100\"]"]);
    let values: Vec<f64> = found.iter().map(|trial| trial["measure"][1].as_f64().unwrap()).collect();
    assert!(values.is_sorted_by(|a, b| a >= b) && found[0]["measure"][0] == "RR(rel=2)", "{found:?}");
    // Only q2 has a document of grade 2, at the second rank.
    assert_eq!(values[0], 0.25);
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
        "twice.jsonl:2: field `_id`: `a` stands on line 1 already",
    );
}
