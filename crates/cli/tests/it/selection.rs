//! Knowledge selection from the shell: training, ranking, predictions and scores over a few generated dialogues.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::common::{errors, root, sporran};
use serde_json::{Value, json};

fn config(name: &str) -> String {
    root().join("configs/wowpp").join(name).display().to_string()
}

/// A tiny encoder with a tokenizer.
fn encoder() -> String {
    let path: PathBuf = root().join("crates/transformers/tests/data/encoders/bert-sequence");
    path.display().to_string()
}

/// Twelve dialogues with three sentences each. The right sentence has the last turn's word.
fn dialogues(folder: &Path) -> String {
    let words =
        ["river", "city", "film", "book", "song", "king", "war", "team", "band", "album", "party", "queen"];
    let mut all = serde_json::Map::new();
    for (at, word) in words.iter().enumerate() {
        let other = words[(at + 5) % words.len()];
        let sentence = |text: String, confidence: f64| json!({ "label": format!("Title <knowledge_separator> {text}"), "confidence": confidence, "article": "Title" });
        let sentences = [
            sentence(format!("the first {other} was born in the north"), 0.1),
            sentence(format!("the {word} is the {word} of the year"), if at % 2 == 0 { 0.9 } else { 1.0 }),
            sentence("who played where and when".into(), 0.0),
        ];
        let turns = json!([format!("what is in the country {at}"), format!("the {word}")]);
        let mut dialogue = json!({ "turns": turns, "topic": word, "annotated_sentences": sentences });
        dialogue["gold_sentence"] = json!(format!("the {word} is the {word} of the year"));
        all.insert(format!("d{at}"), dialogue);
    }
    let path = folder.join("wowpp.json");
    fs::write(&path, Value::Object(all).to_string()).unwrap();
    path.display().to_string()
}

fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = sporran(folder, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn tfidf_ranks_every_candidate_and_predicts_the_best_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let data = dialogues(folder.path());
    run(folder.path(), &["--quiet", "train", &config("tfidf.toml"), &format!("data.train={data}")]);
    let model = "runs/wowpp-tfidf/model";
    let printed = run(
        folder.path(),
        &[
            "--quiet",
            "rerank",
            "--model",
            model,
            "--wowpp",
            &data,
            "--output",
            "r.jsonl",
            "--predictions",
            "p.jsonl",
        ],
    );
    assert!(printed.contains("map@5 1.000") && printed.contains("map_norm@10 1.000"), "{printed}");
    let report = json_of(&run(folder.path(), &["evaluate", "ranking", "r.jsonl", "--json"]));
    assert_eq!((&report["queries"], &report["mrr@1"]), (&json!(12), &json!(1.0)));
    assert_eq!(report["intervals"]["map@5"]["mean"], report["map@5"]);
    assert!(report["map_norm@5"].as_f64() >= report["map@5"].as_f64(), "{report}");
    let predictions = fs::read_to_string(folder.path().join("p.jsonl")).unwrap();
    let first = json_of(predictions.lines().next().unwrap());
    assert_eq!(first["output"][0]["answer"], "the river is the river of the year");
    // Without a store the article's page is unknown.
    assert_eq!(first["output"][0]["provenance"], json!([]));
    assert_eq!(first["meta"]["selection"][0]["title"], "Title");
    let compared = run(
        folder.path(),
        &["evaluate", "ranking", "r.jsonl", "--against", "r.jsonl", "--rounds", "50", "--json"],
    );
    let compared = json_of(&compared);
    assert_eq!(compared["comparison"]["map_norm@10"]["difference"]["mean"], 0.0);
    assert_eq!(compared["comparison"]["ndcg@5"]["p_value"], 1.0);
}

#[test]
fn a_response_is_generated_from_the_best_sentence_with_its_page_as_provenance() {
    let folder = tempfile::tempdir().unwrap();
    let data = dialogues(folder.path());
    run(folder.path(), &["--quiet", "train", &config("tfidf.toml"), &format!("data.train={data}")]);
    let model = root().join("crates/transformers/tests/data/llama");
    let path = config("response-smollm2.toml");
    let (file, model) = (format!("dialogues.file={data}"), format!("generator.model={}", model.display()));
    let (kind, reranker) = ("reranker.kind=tfidf", "reranker.model=runs/wowpp-tfidf/model");
    let page = json!({ "wikipedia_id": "7", "wikipedia_title": "Title",
        "text": ["Title\n", "It is said that the city is the city of the year.\n"] });
    fs::write(folder.path().join("pages.jsonl"), page.to_string()).unwrap();
    let call = [
        "--quiet",
        "run",
        &path,
        &file,
        &model,
        kind,
        reranker,
        "dialogues.limit=5",
        "source.path=pages.jsonl",
        "generator.precision=f32",
        "generator.chat=none",
        "generator.prompt.max-tokens=40",
        "generator.generation.max-new-tokens=6",
        "--json",
    ];
    let report = json_of(&run(folder.path(), &call));
    assert_eq!((&report["dialogues"], &report["ranking"]["mrr@1"]), (&json!(5), &json!(1.0)));
    let lines = |name: &str| {
        let text = fs::read_to_string(folder.path().join("runs/wowpp-response-smollm2").join(name)).unwrap();
        text.lines().map(json_of).collect::<Vec<_>>()
    };
    let predictions = lines("predictions.jsonl");
    assert_eq!((predictions.len(), lines("ranking.jsonl").len()), (5, 5));
    let sentence = "the city is the city of the year";
    assert_eq!(predictions[1]["meta"]["selection"][0]["text"], sentence);
    let item = &predictions[1]["output"][0]["provenance"][0];
    assert_eq!((&item["wikipedia_id"], &item["title"]), (&json!("7"), &json!("Title")));
    assert_eq!((&item["text"], &item["start_paragraph_id"]), (&json!(sentence), &json!(1)));
    let words = |line: &Value| line["output"][0]["answer"].as_str().unwrap().split_whitespace().count();
    let mean = predictions.iter().map(words).sum::<usize>() as f64 / 5.0;
    assert!(mean > 0.0 && (report["words"].as_f64().unwrap() - mean).abs() < 1e-9);
    // Without sentences there is no provenance.
    let closed = ["generator.prompt.passages=0", "name=closed"];
    run(folder.path(), &[&call[..], &closed].concat());
    let text = fs::read_to_string(folder.path().join("runs/closed/predictions.jsonl")).unwrap();
    assert_eq!(json_of(text.lines().next().unwrap())["output"][0]["provenance"], json!([]));
    let wrong = ["reranker.model=none", "generator.kind=verifier"];
    let output = sporran(folder.path(), &[&call[..4], &wrong].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("generator"), "{}", errors(&output));
}

#[test]
fn a_cross_encoder_is_cross_validated_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let data = format!("data.train={}", dialogues(folder.path()));
    let from = format!("reranker-training.from={}", encoder());
    let path = config("features-cross-encoder.toml");
    let call = [
        "--quiet",
        "train",
        &path,
        &data,
        &from,
        "reranker-training.max-tokens=40",
        "reranker-training.optimizer.epochs=2",
        "reranker-training.optimizer.warmup-steps=1",
        "data.folds=3",
        "--json",
    ];
    let fitted = json_of(&run(folder.path(), &call));
    assert_eq!(fitted["models"].as_array().unwrap().len(), 3);
    let ranking = folder.path().join(fitted["ranking"].as_str().unwrap());
    let before = fs::read(&ranking).unwrap();
    let ids: Vec<Value> =
        String::from_utf8_lossy(&before).lines().map(|line| json_of(line)["id"].clone()).collect();
    // Every dialogue once, in the file's order.
    assert_eq!(ids, (0..12).map(|at| json!(format!("d{at}"))).collect::<Vec<_>>());
    // Finished trainings do not run again, and the ranking is the same.
    let again = json_of(&run(folder.path(), &call));
    assert_eq!(again["steps"], fitted["steps"]);
    assert_eq!(fs::read(&ranking).unwrap(), before);
}

#[test]
fn every_other_wowpp_config_trains_and_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let file = dialogues(folder.path());
    let (data, from) = (format!("data.train={file}"), format!("reranker-training.from={}", encoder()));
    let original = format!("data.original={file}");
    let small = ["reranker-training.max-tokens=40"];
    let short = ["reranker-training.optimizer.epochs=1", "reranker-training.optimizer.warmup-steps=0"];
    for (name, more) in [
        ("cosine-minilm", vec![]),
        ("cosine-minilm-mlm", short.to_vec()),
        ("features-cross-encoder-wow", short.to_vec()),
        ("features-cross-encoder-wow-subset", [&short[..], &["data.limit=4"]].concat()),
        ("features-cross-encoder-both", [&short[..], &[original.as_str()]].concat()),
        ("static", vec![]),
        ("mlm", short.to_vec()),
        ("cross-encoder", [&short[..], &["data.threshold=third-quartile"]].concat()),
        ("cross-encoder-wow", short.to_vec()),
        ("cross-encoder-wow-subset", short.to_vec()),
        ("cross-encoder-wow-subset-800", short.to_vec()),
        ("cross-encoder-both", [&short[..], &[original.as_str()]].concat()),
    ] {
        let path = config(&format!("{name}.toml"));
        let call = [&["--quiet", "train", &path, &data, &from][..], &small, &more].concat();
        run(folder.path(), &call);
        let (model, output) = (format!("runs/wowpp-{name}/model"), format!("{name}.jsonl"));
        run(folder.path(), &["--quiet", "rerank", "--model", &model, "--wowpp", &file, "--output", &output]);
        let ranking = fs::read_to_string(folder.path().join(output)).unwrap();
        assert_eq!(ranking.lines().count(), 12, "{name}");
    }
}

#[test]
fn test_files_are_ranked_into_columns_and_gold_labels_need_a_gold_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = dialogues(folder.path());
    let (data, config) = (format!("data.train={file}"), config("tfidf.toml"));
    let tests = [format!("data.test-unseen={file}"), format!("data.test-seen={file}")];
    let call = ["--quiet", "train", &config, &data, &tests[0], &tests[1]];
    let trained = json_of(&run(folder.path(), &[&call[..], &["--json"]].concat()));
    let columns: Vec<&Value> = trained["tests"].as_array().unwrap().iter().collect();
    assert_eq!((&columns[0]["name"], &columns[1]["name"]), (&json!("test-unseen"), &json!("test-seen")));
    assert_eq!((&columns[0]["scores"]["mrr@1"], &trained["threshold"]), (&json!(1.0), &json!(0.6)));
    let ranking = fs::read_to_string(folder.path().join("runs/wowpp-tfidf/ranking-test-seen.jsonl")).unwrap();
    assert_eq!(ranking.lines().count(), 12);
    let printed = run(folder.path(), &call);
    assert!(printed.contains("\ntest-unseen: mrr@1 1.000"), "{printed}");
    // A sixth of the confidences are above 0.9.
    let quartile =
        run(folder.path(), &["--quiet", "train", &config, &data, "name=q", "data.threshold=third-quartile"]);
    assert!(quartile.contains("threshold 0.9 (third quartile)"), "{quartile}");
    let mut without = json_of(&fs::read_to_string(&file).unwrap());
    for dialogue in without.as_object_mut().unwrap().values_mut() {
        dialogue.as_object_mut().unwrap().remove("gold_sentence");
    }
    fs::write(folder.path().join("without.json"), without.to_string()).unwrap();
    let call = ["train", &config, "data.train=without.json", "data.labels=gold", "name=gold"];
    let output = sporran(folder.path(), &call).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("expected dialogues with a `gold_sentence`"), "{}", errors(&output));
}

#[test]
fn gold_sentences_and_responses_are_added_and_described() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let turn = |speaker: &str, text: &str, sentence: &str| {
        json!({ "speaker": speaker, "text": text, "retrieved_passages": [], "checked_sentence": { "chosen_Tea_0": sentence },
            "checked_passage": { "chosen_topic_0": "Tea" } })
    };
    let wizard = json!([{ "chosen_topic": "Tea", "chosen_topic_passage": ["Tea is a drink.", "It is hot."],
        "dialog": [turn("0_Apprentice", "Tell me of tea.", ""), turn("1_Wizard", "It is hot.", "It is hot.")] }]);
    fs::write(place.join("wizard.json"), wizard.to_string()).unwrap();
    let sentence = |text: &str, confidence: f64| json!({ "label": format!("Tea <knowledge_separator> {text}"), "confidence": confidence });
    let sentences = json!([sentence("Tea is a drink.", 0.9), sentence("It is hot.", 0.3)]);
    let dialogue = json!({ "turns": ["Tell me of tea."], "topic": "Tea", "annotated_sentences": sentences });
    fs::write(place.join("wowpp.json"), json!({ "d": dialogue }).to_string()).unwrap();
    let call = ["convert", "gold", "--wowpp", "wowpp.json", "--output", "gold.json", "wizard.json"];
    let output = sporran(place, &call).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let found = "1 dialogue, 1 found, 1 with a gold sentence, 1 of them among the annotated sentences";
    assert!(errors(&output).contains(found), "{}", errors(&output));
    let written = json_of(&fs::read_to_string(place.join("gold.json")).unwrap());
    assert_eq!(written["d"]["gold_sentence"], "Tea <knowledge_separator> It is hot.");
    assert_eq!(written["d"]["response"], "It is hot.");
    let report = json_of(&run(place, &["describe", "gold.json", "--json"]));
    assert_eq!(report["layout"], "wowpp");
    let relevance = &report["parts"][0]["relevance"];
    assert_eq!((&relevance["with_one"], &relevance["histogram"]), (&json!(1), &json!([0, 1])));
    let gold = json!({ "dialogues": 1, "among_candidates": 1, "only_relevant": 0, "below_threshold": 1, "with_alternative": 1 });
    assert_eq!(relevance["gold"], gold);
    let text = run(place, &["describe", "wowpp.json"]);
    assert!(text.contains("the counts of gold sentences are left out"), "{text}");
}

#[test]
fn the_generator_reads_the_gold_sentence_or_the_one_of_most_annotators() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let mut all = json_of(&fs::read_to_string(dialogues(place)).unwrap());
    for dialogue in all.as_object_mut().unwrap().values_mut() {
        dialogue["gold_sentence"] = "Title <knowledge_separator> who played where and when".into();
        dialogue["response"] = "the song".into();
    }
    fs::write(place.join("gold.json"), all.to_string()).unwrap();
    let model = format!("generator.model={}", root().join("crates/transformers/tests/data/llama").display());
    let config = config("response-smollm2.toml");
    for (choice, sentence) in
        [("gold", "who played where and when"), ("crowd-best", "the river is the river of the year")]
    {
        // The reranker of the config is not needed, and its folder is missing.
        let (by, name) = (format!("dialogues.sentence={choice}"), format!("name={choice}"));
        let call = [
            "--quiet",
            "run",
            &config,
            "dialogues.file=gold.json",
            "dialogues.limit=2",
            &model,
            &by,
            &name,
            "generator.precision=f32",
            "generator.chat=none",
            "generator.prompt.max-tokens=40",
            "generator.generation.max-new-tokens=6",
            "--json",
        ];
        let report = json_of(&run(place, &call));
        assert_eq!((&report["references"], &report["without_sentence"]), (&json!(2), &json!(0)));
        assert!(report["rouge_l"].is_number(), "{report}");
        let path = place.join("runs").join(choice).join("predictions.jsonl");
        let first = json_of(fs::read_to_string(path).unwrap().lines().next().unwrap());
        assert_eq!(first["meta"]["selection"][0]["text"], sentence);
    }
    let wrong = ["run", &config, "dialogues.file=wowpp.json", &model, "dialogues.sentence=best"];
    let output = sporran(place, &wrong).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("`crowd-best`"), "{}", errors(&output));
}

#[test]
fn mistakes_in_a_config_and_missing_votes_have_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = dialogues(folder.path());
    let output = sporran(
        folder.path(),
        &[
            "train",
            &config("features-cross-encoder.toml"),
            "data.train=none.json",
            "reranker-training.los=pairwise",
        ],
    )
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("did you mean `loss`?"), "{}", errors(&output));
    let output = sporran(folder.path(), &["evaluate", "agreement", &file]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("`votes`"), "{}", errors(&output));
    let output = sporran(folder.path(), &["rerank", "--model", "none", "--wowpp", &file]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_weights_of_similarities_are_fitted_on_annotations() {
    let folder = tempfile::tempdir().unwrap();
    let data = dialogues(folder.path());
    let (data, from) = (format!("data.train={data}"), format!("reranker-training.from={}", encoder()));
    let arguments = ["--quiet", "train", &config("combined.toml"), &data, &from, "data.folds=3", "--json"];
    let fitted = json_of(&run(folder.path(), &arguments));
    assert_eq!((fitted["models"].as_array().unwrap().len(), &fitted["steps"]), (3, &json!(0)));
    let ranking = fitted["ranking"].as_str().unwrap();
    let scores = json_of(&run(folder.path(), &["evaluate", "ranking", ranking, "--json"]));
    for name in ["map@5", "map_norm@5", "map_norm@10", "ndcg@10", "queries"] {
        assert_eq!(fitted["scores"][name], scores[name], "{name}");
    }
    // Only the right sentence has a word of the dialogue, and tf-idf is among the similarities.
    assert_eq!(scores["mrr@1"], 1.0, "{scores}");
    let refused = sporran(
        folder.path(),
        &["train", &config("combined.toml"), &data, &from, "combine.cosine=false", "combine.tfidf=false"],
    );
    let output = { refused }.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        errors(&output).contains("`combine.article`: expected `cosine = true` or `tfidf = true`"),
        "{}",
        errors(&output)
    );
}

#[test]
fn trained_rerankers_rerank_a_run_and_lines_of_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let (data, from) =
        (format!("data.train={}", dialogues(place)), format!("reranker-training.from={}", encoder()));
    run(place, &["--quiet", "train", &config("tfidf.toml"), &data]);
    for name in ["cosine-minilm.toml", "combined.toml"] {
        run(place, &["--quiet", "train", &config(name), &data, &from, "reranker-training.max-tokens=40"]);
    }
    let texts = ["the king of the north", "the river is the river of the year", "a film"];
    let page = |(id, text): (usize, &&str)| {
        json!({ "wikipedia_id": id.to_string(), "wikipedia_title": format!("T{id}"),
            "text": [format!("T{id}\n"), text] })
        .to_string()
    };
    let pages: Vec<String> = texts.iter().enumerate().map(page).collect();
    fs::write(place.join("pages.jsonl"), pages.join("\n")).unwrap();
    let record = json!({ "id": "a", "input": "the king and the river", "output": [{ "answer": "x" }] });
    fs::write(place.join("tasks.jsonl"), record.to_string()).unwrap();
    let general = "workflow = \"answer\"\nname = \"r\"\n[source]\npath = \"pages.jsonl\"\n[tasks]\nfiles = [\"tasks.jsonl\"]\n";
    for (kind, name) in
        [("tfidf", "wowpp-tfidf"), ("cosine", "wowpp-cosine-minilm"), ("combined", "wowpp-combined")]
    {
        let model = format!("runs/{name}/model");
        let stages =
            format!("[retriever]\nkind = \"bm25\"\n[reranker]\nkind = \"{kind}\"\nmodel = \"{model}\"\n");
        fs::write(place.join("c.toml"), format!("{general}{stages}")).unwrap();
        run(place, &["--quiet", "config", "check", "c.toml"]);
        let trace = json_of(&run(place, &["--quiet", "retrieve", "c.toml", "--trace", "a", "--json"]));
        let hits = trace["hits"].as_array().unwrap();
        assert_eq!(trace["step"], "reranked");
        // The same texts from standard input have the same scores.
        let titled: Vec<String> = hits
            .iter()
            .map(|hit| {
                let title = hit["title"].as_str().unwrap();
                format!("{title} {}", texts[title[1..].parse::<usize>().unwrap()])
            })
            .collect();
        let line = json!({ "query": "the king and the river", "passages": titled }).to_string();
        let mut command = sporran(place, &["--quiet", "rerank", "--model", &model, "--json"]);
        let output = with_input(&mut command, &line);
        let scores = json_of(&output)["scores"].as_array().unwrap().clone();
        for (hit, score) in hits.iter().zip(&scores) {
            let (one, other) = (hit["score"].as_f64().unwrap(), score.as_f64().unwrap());
            // Combined rerankers read titles apart from texts, which lines do not have.
            assert!(kind == "combined" || (one - other).abs() < 1e-4, "{kind}: {hits:?} {scores:?}");
        }
        assert!(hits.len() > 1 && scores.len() == hits.len(), "{kind}: {hits:?} {scores:?}");
        let other = if kind == "tfidf" { "cosine" } else { "tfidf" };
        let check = sporran(place, &["config", "check", "c.toml", &format!("reranker.kind={other}")])
            .output()
            .unwrap();
        assert_eq!(check.status.code(), Some(2));
        let expected = format!("`reranker.kind`: expected `{kind}`, the kind in {model}; found `{other}`");
        assert!(errors(&check).contains(&expected), "{}", errors(&check));
    }
    let output = sporran(place, &["rerank", "--model", "runs/wowpp-tfidf"]).output().unwrap();
    let expected = "runs/wowpp-tfidf is the folder of a training; its model is runs/wowpp-tfidf/model";
    assert!(output.status.code() == Some(2) && errors(&output).contains(expected), "{}", errors(&output));
    let raw = ["--quiet", "rerank", "--model", "runs/wowpp-tfidf/model", "--raw-scores"];
    let output = sporran(place, &raw).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("--raw-scores is for a cross-encoder"), "{}", errors(&output));
}

/// The standard output of a command that reads a text.
fn with_input(command: &mut std::process::Command, text: &str) -> String {
    use std::{io::Write, process::Stdio};
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
