//! Retrievers from a config and from the shell: names, hybrid, iterative and reranked retrieval, and trainings of encoders.

use std::{fs, path::Path, process::Output};

use crate::common::{errors, root, sporran};
use serde_json::Value;

const PAGES: [&str; 5] = [
    r#"{"wikipedia_id":"1","wikipedia_title":"Berlin","text":["Berlin","Berlin is the capital of Germany."],"anchors":[{"text":"the country","href":"Germany","paragraph_id":1,"start":25,"end":32}]}"#,
    r#"{"wikipedia_id":"2","wikipedia_title":"Paris","text":["Paris","Paris is the capital of France."]}"#,
    r#"{"wikipedia_id":"3","wikipedia_title":"Harbour (film)","text":["Harbour (film)","Harbour is a film that Ann Lund shot in Oslo."]}"#,
    r#"{"wikipedia_id":"4","wikipedia_title":"Oslo","text":["Oslo","Oslo is the capital of Norway."]}"#,
    r#"{"wikipedia_id":"5","wikipedia_title":"Germany","text":["Germany","Germany is a country."]}"#,
];

const TASK: [&str; 3] = [
    r#"{"id":"a","input":"capital of France","output":[{"answer":"Paris","provenance":[{"wikipedia_id":"2"}]}]}"#,
    r#"{"id":"b","input":"where was the film Harbour shot?","output":[{"answer":"Oslo","provenance":[{"wikipedia_id":"3"},{"wikipedia_id":"4"}]}]}"#,
    r#"{"id":"c","input":"news from [START_ENT] the country [END_ENT] today","output":[{"answer":"Germany","provenance":[{"wikipedia_id":"5"}]}]}"#,
];

/// Writes small inputs, and a config with the tables `stages`.
fn write_inputs(folder: &Path, stages: &str) {
    fs::write(folder.join("pages.jsonl"), PAGES.join("\n")).unwrap();
    fs::write(folder.join("tasks.jsonl"), TASK.join("\n")).unwrap();
    let workflow = if stages.contains("[encoder-training]") { "retriever-training" } else { "answer" };
    let general = "name = \"r\"\n[source]\npath = \"pages.jsonl\"\n[tasks]\nfiles = [\"tasks.jsonl\"]\n";
    fs::write(folder.join("c.toml"), format!("workflow = \"{workflow}\"\n{general}{stages}")).unwrap();
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let output = sporran(folder, &[&["-q"], arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    output
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The pages of each record's provenance after `retrieve`.
fn pages(stages: &str) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path(), stages);
    run(folder.path(), &["retrieve", "c.toml"]);
    let text = fs::read_to_string(folder.path().join("runs/r-retrieval/predictions/tasks.jsonl")).unwrap();
    let page = |item: &Value| item["wikipedia_id"].as_str().unwrap().to_owned();
    text.lines()
        .map(|line| {
            let record: Value = serde_json::from_str(line).unwrap();
            record["output"][0]["provenance"].as_array().unwrap().iter().map(page).collect()
        })
        .collect()
}

fn encoder() -> String {
    root().join("crates/transformers/tests/data/encoders/sentence").display().to_string()
}

const NAMES: &str = "[retriever]\nkind = \"entity\"\n[retriever.context]\nkind = \"bm25\"\n";

#[test]
fn names_find_pages_by_titles_and_anchors() {
    let found = pages(NAMES);
    // No page has the title France. The film's title is Harbour without its brackets. The anchor links to Germany.
    assert_eq!(found, [vec![], vec!["3"], vec!["5"]]);
}

#[test]
fn iterative_retrieval_returns_sets_of_pages() {
    let stages = "[retriever]\nkind = \"iterative\"\n[retriever.base]\nkind = \"bm25\"\n";
    let found = pages(stages);
    assert_eq!(found[1][..2], ["3", "4"]);
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path(), stages);
    let trace = json(&run(folder.path(), &["retrieve", "c.toml", "--trace", "b", "--json"]));
    assert_eq!(trace["sets"][0]["titles"], serde_json::json!(["Harbour (film)", "Oslo"]));
    assert_eq!(trace["parts"][0]["query"], "where was the film Harbour shot?");
    let follow_up = trace["parts"][1]["query"].as_str().unwrap();
    assert!(
        follow_up.starts_with("where was the film Harbour shot? Harbour (film) Harbour is a film"),
        "{follow_up}"
    );
    let shown = run(folder.path(), &["retrieve", "c.toml", "--trace", "b"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("Harbour (film) + Oslo"));
    let unknown = sporran(folder.path(), &["-q", "retrieve", "c.toml", "--trace", "zz"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(errors(&unknown).contains("no record with the id `zz`"), "{}", errors(&unknown));
}

#[test]
fn hybrid_retrieval_fuses_and_tune_chooses_weights() {
    let stages = format!(
        "[retriever]\nkind = \"hybrid\"\n[[retriever.parts]]\nkind = \"bm25\"\n[[retriever.parts]]\nkind = \"dense\"\n\
         model = '{}'\nsimilarity = \"cosine\"\n",
        encoder()
    );
    let found = pages(&stages);
    // The dense retriever ranks every page, BM25 only those that share a term.
    assert!(found.iter().all(|pages| pages.len() == PAGES.len()), "{found:?}");
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path(), &stages);
    let tried = json(&run(folder.path(), &["tune", "c.toml", "--show", "1000", "--json"]));
    let tried = tried.as_array().unwrap();
    // Four fusion methods, eleven pairs of weights in tenths.
    assert_eq!(tried.len(), 44);
    let score =
        |one: &Value| one["r-precision"].as_f64().unwrap_or_else(|| one["r_precision"].as_f64().unwrap());
    let at_first = score(&tried[0]) + tried[0]["recall_at_5"].as_f64().unwrap();
    assert!(tried.iter().all(|one| score(one) + one["recall_at_5"].as_f64().unwrap() <= at_first));
    let wrong =
        sporran(folder.path(), &["-q", "tune", "c.toml", "retriever={kind=\"bm25\"}"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{}", errors(&wrong));
}

#[test]
fn a_reranker_reorders_the_hits() {
    let model = root().join("crates/transformers/tests/data/encoders/bert-sequence").display().to_string();
    let stages = format!(
        "[retriever]\nkind = \"bm25\"\n[reranker]\nkind = \"cross-encoder\"\nmodel = '{model}'\nrerank.depth = 2\n"
    );
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path(), &stages);
    let check = sporran(folder.path(), &["-q", "config", "check", "c.toml"]).output().unwrap();
    assert!(check.status.success(), "{}", errors(&check));
    let ranked = json(&run(folder.path(), &["retrieve", "c.toml", "--trace", "a", "--json"]));
    assert_eq!(ranked["step"], "reranked");
    let page = |hit: &Value| hit["passage"].as_u64().unwrap();
    let mut first: Vec<u64> = ranked["parts"][0]["hits"].as_array().unwrap().iter().map(page).collect();
    let mut all: Vec<u64> = ranked["hits"].as_array().unwrap().iter().map(page).collect();
    // The other hits keep their order, and no passage is lost.
    assert_eq!(all[2..], first[2..]);
    all.sort_unstable();
    first.sort_unstable();
    assert_eq!(all, first);
}

#[test]
fn filters_restrict_retrieval_by_metadata() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path(), "[retriever]\nkind = \"bm25\"\n");
    let langs = ["de", "fr", "en", "no", "de"];
    let described: Vec<String> = (2000..)
        .zip(PAGES.iter().zip(langs))
        .map(|(year, (page, lang))| page.replacen('{', &format!(r#"{{"lang":"{lang}","year":{year},"#), 1))
        .collect();
    fs::write(folder.path().join("pages.jsonl"), described.join("\n")).unwrap();
    let traced = |arguments: &[&str]| {
        let arguments = [&["retrieve", "c.toml", "--trace", "a", "--json"], arguments].concat();
        json(&run(folder.path(), &arguments))
    };
    let ids = |arguments: &[&str]| {
        let hits = traced(arguments)["hits"].clone();
        let id = |hit: &Value| hit["wikipedia_id"].as_str().unwrap().to_owned();
        let mut ids: Vec<String> = hits.as_array().unwrap().iter().map(id).collect();
        ids.sort();
        ids
    };
    // The pages with the word capital.
    assert_eq!(ids(&[]), ["1", "2", "4"]);
    assert_eq!(ids(&["--filter", "lang=de"]), ["1"]);
    assert_eq!(ids(&["--filter", "lang!=fr AND year<=2000"]), ["1"]);
    assert_eq!(ids(&["--filter", "year>=2001"]), ["2", "4"]);
    assert_eq!(ids(&["--filter", "year>=2001", "--filter", "title=Oslo"]), ["4"]);
    let listed = ["retriever.filter.key=lang", "retriever.filter.any-of=[\"fr\", \"no\"]"];
    assert_eq!(ids(&listed), ["2", "4"]);
    assert_eq!(ids(&[listed[0], listed[1], "--filter", "lang=fr"]), ["2"]);
    let hit = &traced(&[])["hits"][0];
    assert!(["file", "line", "page"].iter().all(|key| hit.get(key).is_none()), "{hit}");

    let predicted = |arguments: &[&str]| {
        run(folder.path(), &[&["retrieve", "c.toml"], arguments].concat());
        let path = folder.path().join("runs/r-retrieval/predictions/tasks.jsonl");
        let text = fs::read_to_string(path).unwrap();
        let record: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        record["output"][0]["provenance"].clone()
    };
    // The second run has another filter, so it does not keep the first one's predictions.
    assert_eq!(predicted(&[]).as_array().unwrap().len(), 3);
    let found = predicted(&["--filter", "lang=no"]);
    assert_eq!((found.as_array().unwrap().len(), &found[0]["wikipedia_id"]), (1, &"4".into()));
    assert!(found[0].get("file").is_none(), "{found}");

    for (filter, expected) in [
        (
            "lnag=no",
            "filter: unknown key `lnag`; the keys of the passages are `lang`, `year`, `title`, `section`",
        ),
        ("year=soon", "filter: the values of `year` are numbers, found the string `soon`"),
        ("lang>=3", "filter: the values of `lang` are strings, found a range of numbers"),
        ("year>2000", "filter: expected `=`, `!=`, `>=` or `<=`, found `>2000`"),
    ] {
        let wrong =
            sporran(folder.path(), &["-q", "retrieve", "c.toml", "--filter", filter]).output().unwrap();
        assert_eq!(wrong.status.code(), Some(2));
        assert!(errors(&wrong).contains(expected), "{}", errors(&wrong));
    }
}

#[test]
fn passages_of_files_keep_their_places() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path(), "[retriever]\nkind = \"bm25\"\n");
    let passages = [
        r#"{"id":"n1","title":"Notes","text":"Paris is the capital of France.","file":"notes.md","line":12,"section":"Capitals","lang":"en"}"#,
        r#"{"id":"r1","text":"Oslo is the capital of Norway.","file":"report.pdf","page":3,"section":"Cities"}"#,
    ];
    fs::write(folder.path().join("passages.jsonl"), passages.join("\n")).unwrap();
    let convert = ["convert", "files", "--from", "passages", "--to", "knowledge-source"];
    run(folder.path(), &[&convert[..], &["--output", "pages.jsonl", "passages.jsonl"]].concat());
    run(folder.path(), &["retrieve", "c.toml"]);
    let text = fs::read_to_string(folder.path().join("runs/r-retrieval/predictions/tasks.jsonl")).unwrap();
    let record: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let found = &record["output"][0]["provenance"];
    let fields = |at: usize| {
        ["wikipedia_id", "title", "section", "file", "line", "page"].map(|key| found[at][key].clone())
    };
    let null = Value::Null;
    assert_eq!(
        fields(0),
        ["n1".into(), "Notes".into(), "Capitals".into(), "notes.md".into(), 12.into(), null.clone()]
    );
    assert_eq!(fields(1), ["r1".into(), "".into(), "Cities".into(), "report.pdf".into(), null, 3.into()]);
    let shown = run(folder.path(), &["retrieve", "c.toml", "--trace", "a"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("Notes (n1), notes.md, line 12\n"), "{shown}");
    assert!(shown.contains("  r1, report.pdf, page 3\n"), "{shown}");
    let arguments =
        ["retrieve", "c.toml", "--trace", "a", "--json", "--filter", "file=report.pdf AND page>=3"];
    let hits = json(&run(folder.path(), &arguments))["hits"].clone();
    assert_eq!(
        (hits.as_array().unwrap().len(), &hits[0]["file"], &hits[0]["page"]),
        (1, &"report.pdf".into(), &3.into())
    );
    assert!(hits[0].get("line").is_none());
}

#[test]
fn pages_can_be_excluded_by_id_or_title() {
    let stages = |exclude: bool| {
        format!("[pages]\nfile = \"pages.txt\"\nexclude = {exclude}\n[retriever]\nkind = \"bm25\"\n")
    };
    let found = |exclude: bool, list: &str| {
        let folder = tempfile::tempdir().unwrap();
        write_inputs(folder.path(), &stages(exclude));
        fs::write(folder.path().join("pages.txt"), list).unwrap();
        let output =
            sporran(folder.path(), &["-q", "retrieve", "c.toml", "--trace", "a", "--json"]).output().unwrap();
        if !output.status.success() {
            return Err((output.status.code(), errors(&output)));
        }
        let titles = json(&output)["hits"].as_array().unwrap().clone();
        Ok(titles.iter().map(|hit| hit["title"].as_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(found(true, "2\n").unwrap(), ["Berlin", "Oslo"]);
    assert_eq!(found(false, "Berlin\n\n4\n").unwrap(), ["Berlin", "Oslo"]);
    let (code, message) = found(false, "Berlin\nRome\n").unwrap_err();
    assert_eq!(code, Some(2));
    assert!(message.contains("pages.txt:2:") && message.contains("`Rome`"), "{message}");
}

#[test]
fn a_changed_passage_template_builds_another_index() {
    let stages = format!("[retriever]\nkind = \"dense\"\nmodel = '{}'\n", encoder());
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path(), &stages);
    run(folder.path(), &["retrieve", "c.toml"]);
    let indexes = folder.path().join("indexes");
    let dense = |indexes: &Path| {
        let names =
            fs::read_dir(indexes).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("dense-")).count()
    };
    assert_eq!(dense(&indexes), 1);
    run(folder.path(), &["retrieve", "c.toml", "retriever.query-template=ask: {text}"]);
    assert_eq!(dense(&indexes), 1, "a query's template changes no passage");
    run(folder.path(), &["retrieve", "c.toml", "retriever.passage-template={text}"]);
    assert_eq!(dense(&indexes), 2);
}

/// A config that trains an encoder of `kind` on the same tasks.
fn training(folder: &Path, kind: &str, from: &str) {
    // The dense retriever ranks every page, so each wrong page is a hard negative.
    let stages = format!(
        "[retriever]\nkind = \"dense\"\nmodel = '{from}'\n[encoder-training]\nkind = \"{kind}\"\nfrom = '{from}'\nmodel = \"trained\"\n\
         data = [\"more.json\"]\nexamples = {{ files = [\"tasks.jsonl\"] }}\n[encoder-training.optimizer]\n\
         epochs = 100\nlearning-rate = 5e-3\nwarmup-steps = 2\n"
    );
    write_inputs(folder, &stages);
    let more = r#"[{"question": "capital of Norway", "answers": ["Oslo"], "positive_ctxs": [{"title": "Oslo",
        "text": "Oslo is the capital of Norway."}], "hard_negative_ctxs": [{"title": "Berlin", "text": "a city"}]}]"#;
    fs::write(folder.join("more.json"), more).unwrap();
}

#[test]
fn a_trained_bi_encoder_retrieves_its_training_pages() {
    let folder = tempfile::tempdir().unwrap();
    training(folder.path(), "bi-encoder", &encoder());
    let trained = json(&run(folder.path(), &["train", "c.toml", "--json"]));
    let best = trained["best"][1].as_f64().unwrap();
    // After this training the right page is first for each of the three questions.
    assert_eq!(best, 1.0, "{trained}");
    let dense = "[retriever]\nkind = \"dense\"\nmodel = \"trained\"\nsimilarity = \"cosine\"\n";
    write_inputs(folder.path(), dense);
    let report = json(&run(folder.path(), &["retrieve", "c.toml", "--json"]));
    assert!(report["tasks"][0]["scores"]["Rprec"].as_f64().unwrap() > 0.8, "{report}");
}

#[test]
fn a_reranker_is_trained_and_used() {
    let folder = tempfile::tempdir().unwrap();
    training(folder.path(), "cross-encoder", &encoder());
    let trained = json(&run(folder.path(), &["train", "c.toml", "--json"]));
    assert_eq!(trained["best"][1].as_f64().unwrap(), 1.0, "{trained}");
    let stages = "[retriever]\nkind = \"bm25\"\n[reranker]\nkind = \"cross-encoder\"\nmodel = \"trained\"\n";
    write_inputs(folder.path(), stages);
    let trace = json(&run(folder.path(), &["retrieve", "c.toml", "--trace", "a", "--json"]));
    assert_eq!(trace["hits"][0]["title"], "Paris");
}

#[test]
fn errors_in_training_data_name_the_file_and_the_field() {
    let folder = tempfile::tempdir().unwrap();
    training(folder.path(), "bi-encoder", &encoder());
    let refused = |arguments: &[&str]| {
        let output = sporran(folder.path(), &[&["-q"], arguments].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        errors(&output)
    };
    let message = refused(&["train", "c.toml", "encoder-training.pooling=max"]);
    assert!(message.contains("option `pooling`: expected `cls` or `mean`, found max"), "{message}");
    for key in ["data", "dialogues"] {
        let message =
            refused(&["config", "check", "c.toml", &format!("encoder-training.{key}=[\"none.json\"]")]);
        assert!(message.contains(&format!("`encoder-training.{key}`: no file none.json")), "{message}");
    }
    fs::write(folder.path().join("talk.json"), r#"{"d": {"turns": ["hi"], "topic": "t"}}"#).unwrap();
    let message = refused(&["train", "c.toml", "encoder-training.dialogues=[\"talk.json\"]"]);
    assert!(message.contains("talk.json:1") && message.contains("annotated_sentences"), "{message}");
    fs::write(folder.path().join("more.json"), "[{\"question\": \"q\"}]").unwrap();
    let message = refused(&["train", "c.toml"]);
    assert!(message.contains("more.json:1") && message.contains("positive_ctxs"), "{message}");
    assert!(!folder.path().join("trained").exists());
}

#[test]
fn a_report_has_the_recall_of_an_hnsw_index() {
    let folder = tempfile::tempdir().unwrap();
    let stages = format!("[retriever]\nkind = \"dense\"\nmodel = '{}'\nindex.kind = \"hnsw\"\n", encoder());
    write_inputs(folder.path(), &stages);
    let report = json(&run(folder.path(), &["retrieve", "c.toml", "--json"]));
    // The graph finds all five vectors.
    assert_eq!(report["indexes"][0]["recall"], 1.0, "{report}");
    assert_eq!(report["indexes"][0]["lost"], 0, "{report}");
    let shown = run(folder.path(), &["retrieve", "c.toml"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("finds 100.00 % of the"), "{shown}");
}
