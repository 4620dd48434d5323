//! Runs whose models are at an endpoint.

#[path = "../../../remote/tests/it/server.rs"]
mod server;

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};
use server::{Asked, Reply, Server};

use crate::common::{errors, json, root, sporran};

/// The capitals of the pages.
const CITIES: [&str; 3] = ["Oslo", "Bergen", "Paris"];

/// The vector of a text: whether it has each city.
fn vector(text: &str) -> Value {
    let has = |city: &&str| f64::from(u8::from(text.contains(*city)));
    CITIES.iter().map(has).chain([0.1]).collect::<Vec<f64>>().into()
}

/// Answers all routes: vectors by cities, scores by the same vectors, and texts that name the first city of the question.
fn reply(asked: &Asked) -> Reply {
    let texts = |name: &str| {
        let texts = asked.body[name].as_array().unwrap().iter();
        texts.map(|text| text.as_str().unwrap().to_owned()).collect::<Vec<String>>()
    };
    match asked.path.as_str() {
        "/v1/embeddings" => {
            let entry =
                |(index, text): (usize, &String)| json!({ "index": index, "embedding": vector(text) });
            let data: Vec<Value> = texts("input").iter().enumerate().map(entry).rev().collect();
            Reply::Json(json!({ "data": data, "usage": { "prompt_tokens": 1, "total_tokens": 1 } }))
        }
        "/v1/rerank" => {
            let query = asked.body["query"].as_str().unwrap();
            let city = CITIES.iter().find(|city| query.contains(**city)).unwrap();
            let score = |(index, text): (usize, &String)| json!({ "index": index, "relevance_score": text.matches(city).count() });
            let results: Vec<Value> = texts("documents").iter().enumerate().map(score).rev().collect();
            Reply::Json(json!({ "results": results }))
        }
        _ => {
            let messages = asked.body["messages"].as_array().unwrap();
            let question = messages[messages.len() - 1]["content"].as_str().unwrap();
            let question = question.rsplit("Question:").next().unwrap();
            let city = CITIES.iter().find(|city| question.contains(**city)).unwrap_or(&"nothing");
            let usage = json!({ "prompt_tokens": 10, "completion_tokens": 2 });
            Reply::Json(json!({ "choices": [{ "message": { "content": city } }], "usage": usage }))
        }
    }
}

/// Writes pages, questions and a config whose models are all at the endpoint.
fn write(folder: &Path, url: &str, questions: usize) {
    let page = |(id, city): (usize, &&str)| {
        format!(
            "{{\"wikipedia_id\": \"{id}\", \"wikipedia_title\": \"{city}\", \"text\": [\"{city}\", \"{city} is a city.\"]}}\n"
        )
    };
    fs::write(folder.join("pages.jsonl"), CITIES.iter().enumerate().map(page).collect::<String>()).unwrap();
    let question = |id: usize| {
        let (at, city) = (id % 3, CITIES[id % 3]);
        format!(
            "{{\"id\": \"{id}\", \"input\": \"Where is {city}, {id}?\", \"output\": [{{\"answer\": \"{city}\", \
             \"provenance\": [{{\"wikipedia_id\": \"{at}\", \"title\": \"{city}\"}}]}}]}}\n"
        )
    };
    fs::write(folder.join("nq-dev-kilt.jsonl"), (0..questions).map(question).collect::<String>()).unwrap();
    let endpoint = format!("kind = \"remote\"\nbase-url = \"{url}\"\nmodel = \"m\"\n");
    let config = format!(
        "workflow = \"answer\"\nname = \"r\"\n[source]\npath = \"pages.jsonl\"\n[tasks]\nfiles = [\"nq-dev-kilt.jsonl\"]\n\
         [retriever]\n{endpoint}[reranker]\n{endpoint}[generator]\n{endpoint}\
         requests.input-price = 1000000.0\nrequests.output-price = 2000000.0\n"
    );
    fs::write(folder.join("c.toml"), config).unwrap();
}

#[test]
fn a_killed_run_goes_on_without_repeating_a_request_and_a_second_run_sends_none() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(|_, asked| {
        if asked.path == "/v1/chat/completions" {
            std::thread::sleep(Duration::from_millis(4));
        }
        reply(asked)
    });
    write(place.path(), &server.url, 300);
    let mut child = sporran(place.path(), &["--quiet", "run", "c.toml"]).spawn().unwrap();
    let texts = || server.asked().iter().filter(|asked| asked.path == "/v1/chat/completions").count();
    while texts() < 200 {
        assert!(child.try_wait().unwrap().is_none(), "the run is over already");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!place.path().join("runs/r/predictions/nq-dev-kilt.jsonl").exists());
    let output = sporran(place.path(), &["--quiet", "run", "c.toml"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    // Of the requests that were under way, one each thread, the responses were lost.
    assert!((300..=304).contains(&texts()), "{}", texts());
    let read = |path: &str| fs::read_to_string(place.path().join(path)).unwrap();
    let report: Value = serde_json::from_str(&read("runs/r/report.json")).unwrap();
    let scores = &report["tasks"][0]["scores"];
    assert_eq!((&scores["answer"], &scores["r_precision"]), (&json!(1.0), &json!(1.0)), "{report}");

    let before = server.asked().len();
    let output = sporran(place.path(), &["--quiet", "run", "c.toml", "name=again"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(server.asked().len(), before);
    let [first, second] =
        ["r", "again"].map(|name| read(&format!("runs/{name}/predictions/nq-dev-kilt.jsonl")));
    assert_eq!(first, second);
    let manifest: Value = serde_json::from_str(&read("runs/again/manifest.json")).unwrap();
    let endpoint = &manifest["endpoints"][0];
    assert_eq!(endpoint["requests"], 0);
    assert!(endpoint["cached"].as_u64().unwrap() >= 300, "{endpoint}");

    let fresh = "generator.requests.cache=other";
    let output = sporran(place.path(), &["--quiet", "run", "c.toml", "name=fresh", fresh]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let manifest: Value = serde_json::from_str(&read("runs/fresh/manifest.json")).unwrap();
    let endpoint = &manifest["endpoints"][0];
    assert_eq!((&endpoint["requests"], &endpoint["output_tokens"]), (&json!(300), &json!(600)));
    // 3,000 input tokens at 1 and 600 output tokens at 2.
    assert_eq!(endpoint["cost"], 4200.0, "{endpoint}");
}

#[test]
fn a_run_without_a_usable_endpoint_ends_with_its_message_and_no_predictions() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(|_, asked| match asked.path.as_str() {
        "/v1/models" => Reply::Json(json!({ "data": [{ "id": "other" }] })),
        "/v1/chat/completions" => Reply::Status(404, "", r#"{"error": {"message": "no model `m`"}}"#.into()),
        _ => reply(asked),
    });
    write(place.path(), &server.url, 5);
    let output = sporran(place.path(), &["--quiet", "run", "c.toml"]).output().unwrap();
    let message = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("no model `m`; the endpoint has `other`"), "{message}");
    assert!(!place.path().join("runs/r/predictions/nq-dev-kilt.jsonl").exists());
    for (setting, expected) in [
        ("generator.api-key-env=sk-secret-1", "the name of an environment variable"),
        ("generator.base-url=https://me:secret-1@host/v1", "without a user or a password"),
        ("reranker.base-url=host:80", "`reranker.base-url`"),
        ("retriever.similarity=cosin", "did you mean `cosine`?"),
    ] {
        let output = sporran(place.path(), &["config", "check", "c.toml", setting]).output().unwrap();
        let message = errors(&output) + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected) && !message.contains("secret-1"), "{message}");
    }
    let unset = "generator.api-key-env=SPORRAN_NO_SUCH_VARIABLE";
    let output = sporran(place.path(), &["--quiet", "run", "c.toml", unset]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        errors(&output).contains("SPORRAN_NO_SUCH_VARIABLE, found no such variable"),
        "{}",
        errors(&output)
    );
}

#[test]
fn questions_are_answered_in_context_and_dialogues_get_responses() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(|_, asked| {
        let messages = asked.body["messages"].as_array().unwrap();
        let text = if messages.len() > 2 { "Norway, \"Sweden\"" } else { "I like it" };
        Reply::Json(json!({ "choices": [{ "message": { "content": text } }] }))
    });
    let path = |name: &str| place.path().join(name).display().to_string();
    let model = [
        format!("reasoner.base-url={}", server.url),
        format!("reasoner.requests.cache={}", path("responses")),
        format!("output={}", path("runs")),
    ];
    let shown = "reasoner.demonstrations.files=['examples/korc/small_iid_test.json']";
    let config = ["--quiet", "reason", "configs/quickstart-reason.toml", "--json", "reasoner.kind=remote"];
    let call = [&config[..], &["data.limit=2", shown], &model.each_ref().map(String::as_str)].concat();
    let output = sporran(&root(), &call).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let first = String::from_utf8(output.stdout).unwrap();
    let record: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert!(record["output"][0]["answer"].as_str().unwrap().starts_with("Norway, "), "{record}");
    let asked = server.asked();
    assert_eq!(asked.len(), 4);
    assert_eq!(asked[0].body["messages"].as_array().unwrap().len(), 9);

    let config = format!(
        "workflow = \"dialogue\"\nname = \"d\"\noutput = '{}'\n[dialogues]\nfile = \"examples/minikilt/wowpp/test.json\"\n\
         limit = 3\nsentence = \"crowd-best\"\n[generator]\nkind = \"remote\"\nbase-url = \"{}\"\nmodel = \"m\"\n\
         prompt.passages = 1\nrequests.cache = '{}'\n",
        path("runs"),
        server.url,
        path("responses"),
    );
    fs::write(path("dialogue.toml"), config).unwrap();
    let report = json(&root(), &["--quiet", "run", &path("dialogue.toml"), "--json"]);
    assert_eq!(report["dialogues"], 3, "{report}");
    let predictions = fs::read_to_string(path("runs/d/predictions.jsonl")).unwrap();
    assert_eq!(predictions.matches("\"I like it\"").count(), 3, "{predictions}");
    assert_eq!(server.asked().len(), 7);
}
