//! Baselines of KILT's tables from the shell: generated titles, pages of names, a decoder-only model with demonstrations,
//! `report`, `explain`, `convert queries` and `convert map`.

use std::{fs, path::Path, process::Output};

use crate::common::{errors, root, sporran};
use serde_json::Value;

const PAGES: [&str; 4] = [
    r#"{"wikipedia_id":"1","wikipedia_title":"Berlin","text":["Berlin","Berlin is the capital of Germany."]}"#,
    r#"{"wikipedia_id":"2","wikipedia_title":"Paris","text":["Paris","Paris is the capital of France."]}"#,
    r#"{"wikipedia_id":"3","wikipedia_title":"Oslo","text":["Oslo","Oslo is the capital of Norway."]}"#,
    r#"{"wikipedia_id":"4","wikipedia_title":"The river","text":["The river","The river is in the north."]}"#,
];

const TASK: [&str; 3] = [
    r#"{"id":"a","input":"capital of France","output":[{"answer":"Paris","provenance":[{"wikipedia_id":"2"}]}]}"#,
    r#"{"id":"b","input":"news from [START_ENT] the city [END_ENT] today","output":[{"answer":"Oslo","provenance":[{"wikipedia_id":"3"}]}]}"#,
    r#"{"id":"c","input":"what is in the north?","output":[{"answer":"The river","provenance":[{"wikipedia_id":"4"}]}]}"#,
];

fn write_inputs(folder: &Path, name: &str, stages: &str) {
    fs::write(folder.join("pages.jsonl"), PAGES.join("\n")).unwrap();
    fs::write(folder.join("tasks.jsonl"), TASK.join("\n")).unwrap();
    let general = format!(
        "workflow = \"answer\"\nname = \"{name}\"\n[source]\npath = \"pages.jsonl\"\n[tasks]\nfiles = [\"tasks.jsonl\"]\n"
    );
    fs::write(folder.join(format!("{name}.toml")), format!("{general}{stages}")).unwrap();
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let output = sporran(folder, &[&["-q"], arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    output
}

fn model(name: &str) -> String {
    let owner = if name.starts_with("nsmn") { "generator" } else { "transformers" };
    root().join(format!("crates/{owner}/tests/data")).join(name).display().to_string()
}

fn predictions(folder: &Path, run: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("runs").join(run).join("predictions/tasks.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The titles of a prediction's pages.
fn titles(record: &Value) -> Vec<String> {
    let items = record["output"][0]["provenance"].as_array().unwrap();
    items.iter().map(|item| item["title"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn generated_titles_rank_pages_and_the_best_title_is_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let stages = format!(
        "[retriever]\nkind = \"entity-title\"\nmodel = \"{}\"\ngeneration.num-beams = 3\n[generator]\nkind = \"title\"\n",
        model("bart")
    );
    write_inputs(folder.path(), "genre", &stages);
    run(folder.path(), &["index", "genre.toml"]);
    run(folder.path(), &["run", "genre.toml"]);
    let known: Vec<String> = ["Berlin", "Paris", "Oslo", "The river"].map(str::to_owned).to_vec();
    for record in predictions(folder.path(), "genre") {
        let titles = titles(&record);
        // The decoding is constrained to titles, so even random weights give titles only. Each beam is another page.
        assert!(!titles.is_empty() && titles.len() <= 3 && titles.iter().all(|title| known.contains(title)));
        assert_eq!(record["output"][0]["answer"], titles[0].as_str());
    }
    run(folder.path(), &["retrieve", "genre.toml", "name=free", "retriever.constrained=false"]);
    let found = predictions(folder.path(), "free-retrieval");
    assert!(found.iter().all(|record| titles(record).iter().all(|title| known.contains(title))));
}

#[test]
fn pages_are_ranked_for_each_name_in_any_input() {
    let folder = tempfile::tempdir().unwrap();
    let encoder = model("encoders/bert-sequence");
    let stages = format!(
        r#"
[retriever]
kind = "mentions"
tagger = '{}'
mention-marks = ["[unused0]", "[unused1]"]
[retriever.base]
kind = "reranked"
[retriever.base.base]
kind = "dense"
model = '{encoder}'
pooling = "cls"
query-truncation = "mention-or-end"
[retriever.base.reranker]
kind = "cross-encoder"
model = '{encoder}'
[generator]
kind = "title"
"#,
        root().join("models/ner-small").display()
    );
    write_inputs(folder.path(), "mentions", &stages);
    run(folder.path(), &["run", "mentions.toml"]);
    // The encoder has random weights, so the test checks only that all pages are ranked and the best is the answer.
    for record in predictions(folder.path(), "mentions") {
        let titles = titles(&record);
        assert_eq!(titles.len(), 4, "{record}");
        assert_eq!(record["output"][0]["answer"], titles[0].as_str());
    }
    let queries = |id: &str| -> Vec<String> {
        let output = run(folder.path(), &["explain", "mentions.toml", "--id", id, "--json"]);
        let explanation: Value = serde_json::from_slice(&output.stdout).unwrap();
        let parts = explanation["retrieval"]["parts"].as_array().unwrap();
        parts.iter().map(|part| part["query"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(queries("b"), ["news from [unused0] the city [unused1] today"]);
    // Whichever words the tagger takes for a name, each query is the input, at most with marks.
    let found = queries("a");
    assert!(!found.is_empty());
    for query in found {
        assert_eq!(query.replace("[unused0] ", "").replace(" [unused1]", ""), "capital of france");
    }
    let output = sporran(folder.path(), &["run", "mentions.toml", "retriever.tagger=none"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("`retriever.tagger`: no folder none"), "{}", errors(&output));
}

#[test]
fn the_released_nsmn_networks_verify_claims() {
    let folder = tempfile::tempdir().unwrap();
    for (name, of) in [("selector", "pages"), ("selector", "selector"), ("verifier", "verifier")] {
        let (data, name) = (model(&format!("nsmn/{name}")), format!("nsmn-{of}"));
        run(folder.path(), &["models", "import", &data, "--name", &name]);
    }
    let kilt = root().join("examples/minikilt");
    let source = format!("source.path={}", kilt.join("knowledge_source.jsonl.gz").display());
    let tasks = format!("tasks.folder={}", kilt.join("kilt").display());
    let config = root().join("configs/kilt/fever-nsmn-released.toml").display().to_string();
    run(folder.path(), &["run", &config, &source, &tasks, "tasks.limit=8"]);
    let predictions = folder.path().join("runs/kilt-fever-nsmn-released/predictions/fever-dev-kilt.jsonl");
    let text = fs::read_to_string(predictions).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 8);
    // The weights are random, so the test checks only that each claim has a verdict and retrieved pages.
    for record in records {
        assert!(
            ["SUPPORTS", "REFUTES"].contains(&record["output"][0]["answer"].as_str().unwrap()),
            "{record}"
        );
        assert!(!titles(&record).is_empty(), "{record}");
    }
}

#[test]
fn the_error_for_an_untrained_model_names_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let config = root().join("configs/kilt/minikilt/fever-matching.toml").display().to_string();
    let kilt = root().join("examples/minikilt");
    let source = format!("source.path={}", kilt.join("knowledge_source.jsonl.gz").display());
    let redirects = format!("source.redirects={}", kilt.join("redirects.tsv").display());
    let tasks = format!("tasks.folder={}", kilt.join("kilt").display());
    let examples = format!("train.examples.folder={}", kilt.join("kilt").display());
    let output =
        sporran(folder.path(), &["run", &config, &source, &redirects, &tasks, &examples]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("generator.model") && message.contains("`sporran train` creates it"),
        "{message}"
    );
    // The check comes before the indexes, which can take hours.
    assert!(!folder.path().join("indexes").exists());
}

#[test]
fn a_decoder_only_model_reads_demonstrations_and_explain_shows_its_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let shown = r#"{"id":"x","input":"Norway","output":[{"answer":"Oslo"}]}"#;
    fs::write(folder.path().join("train.jsonl"), shown).unwrap();
    let stages = format!(
        "[retriever]\nkind = \"bm25\"\n[generator]\nkind = \"causal\"\nmodel = \"{}\"\nmax-tokens = 200\n\
         prompt.passages = 1\nprompt.passage-words = 1\nprompt.input = \"{{input}}\"\ngeneration.max-new-tokens = 3\n\
         [generator.demonstrations]\nfiles = [\"train.jsonl\"]\n",
        model("llama/model.gguf")
    );
    write_inputs(folder.path(), "causal", &stages);
    run(folder.path(), &["run", "causal.toml"]);
    assert_eq!(predictions(folder.path(), "causal").len(), 3);
    let output = run(folder.path(), &["explain", "causal.toml", "--id", "a", "--json"]);
    let explanation: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(explanation["retrieval"]["hits"][0]["title"], "Paris");
    let prompt = explanation["prompts"][0].as_str().unwrap();
    assert!(prompt.contains("Norway\nAnswer: Oslo") && prompt.ends_with("Answer:"), "{prompt}");
    assert!(prompt.contains("Paris: Paris\ncapital"), "{prompt}");
    assert_eq!(explanation["evidence"][0]["title"], "Paris");
    let text =
        String::from_utf8(run(folder.path(), &["explain", "causal.toml", "--id", "a"]).stdout).unwrap();
    assert!(
        ["record a", "retrieval", "prompt 1", "answers", "evidence"].iter().all(|part| text.contains(part))
    );
    let missing = sporran(folder.path(), &["explain", "causal.toml", "--id", "zz"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(errors(&missing).contains("no record with the id `zz`"));
}

#[test]
fn report_compares_runs_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    for kind in ["bm25", "tfidf"] {
        write_inputs(folder.path(), kind, &format!("[retriever]\nkind = \"{kind}\"\n"));
        run(folder.path(), &["retrieve", &format!("{kind}.toml")]);
    }
    let report = |arguments: &[&str]| {
        let all = [&["report", "runs/bm25-retrieval", "runs/tfidf-retrieval"], arguments].concat();
        String::from_utf8(run(folder.path(), &all).stdout).unwrap()
    };
    let text = report(&[]);
    // Two of the three questions share words with their page; the mention shares none.
    assert!(text.contains("Page-level R-precision") && !text.contains("Downstream"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("bm25-retrieval") && line.contains("66.7")), "{text}");
    let comparison: Value = serde_json::from_str(&report(&["--json"])).unwrap();
    assert_eq!(comparison["systems"][1]["tasks"][0]["r_precision"]["difference"][0], 0.0);
    assert!(report(&["--form", "latex"]).contains("\\toprule"));
    assert!(report(&["--form", "csv"]).starts_with("system,published"));
    report(&["--form", "html", "-o", "c.html"]);
    assert!(fs::read_to_string(folder.path().join("c.html")).unwrap().contains("<polyline"));
    // Predictions that were changed are told.
    let predictions = folder.path().join("runs/tfidf-retrieval/predictions");
    let file = fs::read_dir(&predictions).unwrap().next().unwrap().unwrap().path();
    let changed = fs::read_to_string(&file).unwrap().replace("\"wikipedia_id\":\"", "\"wikipedia_id\":\"x");
    fs::write(&file, changed).unwrap();
    let text = report(&[]);
    assert!(text.contains("was changed after the run: Rprec was 66.7 then and is 0.0 now."), "{text}");
    let wrong = sporran(folder.path(), &["report", "runs/none"]).output().unwrap();
    assert!(!wrong.status.success() && errors(&wrong).contains("no folder runs/none; you are in"));
}

/// The passage store of a config.
fn store(folder: &Path, config: &str) -> String {
    run(folder, &["index", config]);
    let mut entries = fs::read_dir(folder.join("indexes")).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.to_string_lossy().contains("store-")).unwrap().display().to_string()
}

#[test]
fn convert_queries_generates_queries_about_a_stores_pages() {
    let folder = tempfile::tempdir().unwrap();
    let kilt = root().join("examples/minikilt");
    let config = format!(
        "workflow = \"answer\"\nname = \"m\"\n[source]\npath = '{}'\n[tasks]\nfolder = '{}'\nsplit = \"dev\"\ntriviaqa = ['{}']\n[retriever]\nkind = \"bm25\"\n",
        kilt.join("knowledge_source.jsonl.gz").display(),
        kilt.join("kilt").display(),
        kilt.join("triviaqa/unfiltered-web-dev.json").display()
    );
    fs::write(folder.path().join("m.toml"), config).unwrap();
    let store = store(folder.path(), "m.toml");
    let arguments = [
        "convert",
        "queries",
        "--count",
        "40",
        "--seed",
        "3",
        "--store",
        &store,
        "--output",
        "q-train-kilt.jsonl",
    ];
    let output = sporran(folder.path(), &arguments).output().unwrap();
    assert!(output.status.success() && errors(&output).contains("40 queries"), "{}", errors(&output));
    let text = fs::read_to_string(folder.path().join("q-train-kilt.jsonl")).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 40);
    assert!(records.iter().all(|record| record["output"][0]["provenance"][0]["title"].is_string()));
    for wrong in [&["--count", "0"][..], &["--count", "4", "--from", "kilt"], &["--seed", "4"]] {
        let arguments = [&["convert", "queries", "--store", &store, "--output", "x"], wrong].concat();
        let output = sporran(folder.path(), &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    assert!(!folder.path().join("x").exists());
}

#[test]
fn a_note_names_depths_that_exceed_the_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_inputs(folder, "deep", "[retriever]\nkind = \"bm25\"\n[evidence]\nlimit = 1\n");
    let text = |arguments: &[&str]| String::from_utf8(run(folder, arguments).stdout).unwrap();
    let json = |arguments: &[&str]| -> Value { serde_json::from_str(&text(arguments)).unwrap() };
    let depth = |value: &Value| serde_json::to_string(&value["depth"]).unwrap();

    // A prediction has one page at most, and none if no word matches. recall@5 needs more.
    let printed = text(&["retrieve", "deep.toml"]);
    let note = "predictions hold 1 page at most; recall@5 looks beyond them";
    assert!(printed.contains(&format!("note: tasks.jsonl: {note}\n")), "{printed}");
    let guess = "runs/deep-retrieval/predictions/tasks.jsonl";
    let evaluate = ["evaluate", "kilt", "--gold", "tasks.jsonl", "--guess", guess];
    let with = |more: &[&'static str]| [&evaluate[..], more].concat();
    assert!(text(&evaluate).ends_with(&format!("note: {note}\n")));
    assert_eq!(depth(&json(&with(&["--json"]))), r#"{"min":0,"max":1,"beyond":[5]}"#);
    let scored = with(&["--retrieval", "--ks", "1,50,100"]);
    let note = "note: predictions hold 1 page at most; recall@50 and recall@100 look beyond them\n";
    let printed = text(&scored);
    assert!(
        printed.ends_with(note) && printed.contains("recall@100") && printed.contains("Rprec"),
        "{printed}"
    );
    let expected = r#"{"min":0,"max":1,"beyond":[50,100]}"#;
    assert_eq!(depth(&json(&[&scored[..], &["--json"]].concat())), expected);
    let whole = json(&with(&["--whole", "--ks", "1,50,100", "--json"]));
    assert_eq!(depth(&whole["evidence"]), expected);
    // The gold evidence has no titles so far.
    let titled = fs::read_to_string(folder.join("tasks.jsonl")).unwrap();
    let titled = titled.replace("\"wikipedia_id\"", "\"title\":\"T\",\"wikipedia_id\"");
    fs::write(folder.join("titled.jsonl"), titled).unwrap();
    let levels = ["--retrieval", "--rank-keys", "wikipedia_id", "--rank-keys", "title"];
    let levels = [&["evaluate", "kilt", "--gold", "titled.jsonl", "--guess", guess], &levels[..]].concat();
    let levels = text(&levels);
    assert!(levels.contains("note: title: predictions hold 1 place at most"), "{levels}");
    let both = text(&with(&["--retrieval", "--ks", "1,50", "--against", guess, "--rounds", "20"]));
    assert_eq!(both.matches("1 page at most").count(), 2, "{both}");

    // A greater depth in `recall-at` gives predictions of that depth.
    let report = json(&["retrieve", "deep.toml", "name=deeper", "evaluation.recall-at=[3]", "--json"]);
    let task = &report["tasks"][0];
    assert_eq!((&task["depth"]["max"], &task["depth"]["beyond"]), (&3.into(), &serde_json::json!([5])));
    assert!(task["recall"]["3"].as_f64().unwrap() >= task["scores"]["Rprec"].as_f64().unwrap(), "{report}");
    assert_eq!(
        predictions(folder, "deeper-retrieval").iter().map(|record| titles(record).len()).max(),
        Some(3)
    );
    let table = text(&["retrieve", "deep.toml", "name=deeper", "evaluation.recall-at=[3]"]);
    assert!(table.lines().next().unwrap().ends_with("recall@5  recall@3"), "{table}");
    let wrong = sporran(folder, &["retrieve", "deep.toml", "evaluation.recall-at=[1]"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(errors(&wrong).contains("`evaluation.recall-at`: expected at least 2, found 1"));
}

#[test]
fn convert_map_finds_evidence_in_a_store() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path(), "bm25", "[retriever]\nkind = \"bm25\"\n");
    let store = store(folder.path(), "bm25.toml");
    let line = r#"{"id":1,"input":"where?","answers":["Norway"],"evidence":[{"title":"oslo","text":"Oslo is the capital of Norway"}]}"#;
    fs::write(folder.path().join("own.jsonl"), line).unwrap();
    let arguments = [
        "convert",
        "map",
        "--from",
        "evidence",
        "--store",
        &store,
        "--split",
        "dev",
        "--output",
        "out.jsonl",
    ];
    let output = sporran(folder.path(), &[&arguments[..], &["own.jsonl"]].concat()).output().unwrap();
    assert!(errors(&output).contains("1 written of 1 read"), "{}", errors(&output));
    let record: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("out.jsonl")).unwrap()).unwrap();
    let item = &record["output"][0]["provenance"][0];
    assert_eq!((&item["wikipedia_id"], &item["bleu_score"]), (&"3".into(), &1.0.into()));
    // Of two alternatives, the one with a missing span is dropped.
    let line = r#"{"id":1,"input":"where?","answers":["Norway"],"evidence":[[{"title":"Oslo"}],[{"title":"Oslo"},{"title":"Paris","text":"It rains"}]]}"#;
    fs::write(folder.path().join("own.jsonl"), line).unwrap();
    let output = sporran(folder.path(), &[&arguments[..], &["own.jsonl"]].concat()).output().unwrap();
    let message = errors(&output);
    assert!(
        message.contains("1 outputs with evidence written of 2; 0 that lack a page or a text, 1 with a span"),
        "{message}"
    );
    let output = sporran(folder.path(), &["convert", "--output", "x", "own.jsonl"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
