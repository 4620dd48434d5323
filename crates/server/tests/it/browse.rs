//! The page, what it browses, and the Model Context Protocol over HTTP.

use std::{fs, path::Path};

use serde_json::{Value, json};
use sporran_server::{BrowseOptions, Key, Named, ServerOptions};

use crate::common::{Reply, Served, documents};

/// A run of one prediction and a knowledge base of three triples.
fn options(folder: &Path) -> ServerOptions {
    let run = folder.join("run");
    fs::create_dir_all(run.join("predictions")).unwrap();
    let gold = folder.join("nq-dev-kilt.jsonl");
    let record = json!({"id": "1", "input": "Where was Oberlin born?", "output": [{"answer": "Leipzig", "provenance": [{"wikipedia_id": "1"}]}]});
    fs::write(&gold, format!("{record}\n")).unwrap();
    fs::write(run.join("predictions/nq-dev-kilt.jsonl"), format!("{record}\n")).unwrap();
    fs::write(run.join("report.html"), "<h1>run</h1>").unwrap();
    let tasks = json!([{"input": gold, "predictions": "predictions/nq-dev-kilt.jsonl"}]);
    fs::write(run.join("manifest.json"), json!({"workflow": "answer", "tasks": tasks}).to_string()).unwrap();
    let kb = folder.join("kb");
    fs::create_dir(&kb).unwrap();
    fs::write(kb.join("train.txt"), "mira\tborn\tleipzig\nleipzig\tin\tgermany\nute\tborn\tleipzig\n")
        .unwrap();
    let named = |name: &str, path: &Path| vec![Named { name: name.into(), path: path.to_owned() }];
    let browse = BrowseOptions::new(named("first", &run), named("facts", &kb), Vec::new()).unwrap();
    ServerOptions { mounts: vec![documents(folder)], browse, ..ServerOptions::new() }
}

fn status(reply: &Reply) -> (u16, Value) {
    (reply.status, reply.json()["error"].clone())
}

#[test]
fn the_page_loads_only_what_this_server_has() {
    let served = Served::start(options);
    let page = served.get("/");
    assert_eq!(
        (page.status, page.header("content-type").as_deref()),
        (200, Some("text/html; charset=utf-8"))
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    for file in page.text.split("\"page/").skip(1) {
        let name = file.split('"').next().unwrap();
        let found = served.get(&format!("/page/{name}"));
        assert_eq!(found.status, 200, "{name}");
        assert_eq!(found.header("x-content-type-options").as_deref(), Some("nosniff"));
    }
    assert_eq!(served.get("/page/../Cargo.toml").status, 404);
}

#[test]
fn documents_are_browsed_by_names_alone() {
    let served = Served::start(options);
    let listed = served.get("/browse/documents?offset=1&limit=1").json();
    assert_eq!((&listed["total"], &listed["documents"][0]["id"]), (&json!(3), &json!("2")));
    let found = served.get("/browse/document?mount=pages.jsonl&id=1%231&from=4&to=9").json();
    let marks = &found["paragraphs"][3]["marks"];
    assert_eq!(
        *marks,
        json!([{"start": 4, "end": 9, "kind": "sentence"}, {"start": 0, "end": 27, "kind": "passage"}])
    );
    assert_eq!(found["fields"]["lang"], "en");
    let none = status(&served.get("/browse/document?id=..%2F..%2Fetc%2Fpasswd"));
    assert_eq!(none, (404, json!("there is no document `../../etc/passwd`")));
    assert_eq!(served.get("/browse/document?mount=%2Fetc&id=1").status, 404);
}

#[test]
fn runs_are_browsed_by_names_alone() {
    let served = Served::start(options);
    assert_eq!(
        served.get("/browse").json()["runs"],
        json!([{"name": "first", "workflow": "answer", "records": 1}])
    );
    let run = served.get("/browse/runs/first").json();
    assert_eq!(run["files"][0]["scores"]["answer"]["mean"], 1.0);
    let examples = |query: &str| served.get(&format!("/browse/runs/first/examples?{query}")).json();
    assert_eq!(
        (&examples("answer=right")["total"], &examples("answer=wrong")["total"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(examples("text=oberlin")["examples"][0]["gold"], json!(["Leipzig"]));
    assert_eq!(served.get("/browse/runs/first/examples?answer=maybe").status, 400);
    let page = served.get("/browse/runs/first/report");
    assert_eq!(page.text, "<h1>run</h1>");
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    let none = status(&served.get("/browse/runs/..%2Frun"));
    assert_eq!(none, (404, json!("there is no run `../run`; there are `first`")));
}

#[test]
fn what_is_shown_is_of_one_run_after_another_was_written() {
    let served = Served::start(options);
    let run = served.folder.path().join("run");
    let predicted = |answer: &str, page: &str| {
        let record = json!({"id": "1", "input": "Where was Oberlin born?", "output": [{"answer": answer, "provenance": [{"wikipedia_id": page}]}]});
        fs::write(run.join("predictions/nq-dev-kilt.jsonl"), format!("{record}\n")).unwrap();
    };
    let example = || served.get("/browse/runs/first/examples").json()["examples"][0].clone();
    assert_eq!((&example()["answer"], &example()["answer_right"]), (&json!("Leipzig"), &json!(true)));
    predicted("Vienna, perhaps", "2");
    let found = example();
    // The text, the verdicts and the evidence are of the same run.
    assert_eq!((&found["answer"], &found["answer_right"]), (&json!("Vienna, perhaps"), &json!(false)));
    assert_eq!((&found["provenance"][0]["document"], &found["evidence_right"]), (&json!("2"), &json!(false)));
    assert_eq!(served.get("/browse/runs/first").json()["files"][0]["scores"]["answer"]["mean"], 0.0);
    // A run that is being written has no manifest.
    let manifest = fs::read(run.join("manifest.json")).unwrap();
    fs::remove_file(run.join("manifest.json")).unwrap();
    for path in ["/browse/runs/first", "/browse/runs/first/examples", "/browse/runs/first/report"] {
        let found = served.get(path);
        assert_eq!(
            (found.status, found.header("retry-after").as_deref()),
            (503, Some("10")),
            "{}",
            found.text
        );
        assert!(!found.text.contains("manifest"), "{}", found.text);
    }
    assert_eq!(served.get("/browse").json()["runs"][0]["name"], "first");
    fs::write(run.join("manifest.json"), manifest).unwrap();
    assert_eq!(served.get("/browse/runs/first").status, 200);
}

#[test]
fn a_knowledge_base_is_browsed() {
    let served = Served::start(options);
    let found = served.get("/browse/kb/facts/entities?query=LEIP").json();
    assert_eq!((&found["total"], &found["entities"][0]["triples"]), (&json!(1), &json!(3)));
    let entity = served.get("/browse/kb/facts/entity?id=leipzig").json();
    assert_eq!(entity["incoming"][0]["entities"][1]["label"], "ute");
    let refused = status(&served.get("/browse/kb/facts/complete?relation=in&subject=leipzig"));
    assert_eq!(refused, (400, json!("`facts` has no rules")));
    assert_eq!(served.get("/browse/kb/other/entities").status, 404);
}

#[test]
fn what_is_browsed_needs_the_key_and_the_page_does_not() {
    let key = "0123456789abcdef";
    let served = Served::start(|folder| ServerOptions { key: Some(Key::new(key)), ..options(folder) });
    assert_eq!(served.get("/").status, 200);
    for path in ["/browse", "/browse/runs/first", "/browse/document?id=1", "/mcp"] {
        assert_eq!(served.get(path).status, 401, "{path}");
        let with = served.send("GET", path, &[("x-api-key", key)], "");
        assert_ne!(with.status, 401, "{path}");
    }
}

/// The result of a request of the Model Context Protocol.
fn call(served: &Served, method: &str, parameters: &Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters});
    let headers = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let reply = served.send("POST", "/mcp", &headers, &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

#[test]
fn tools_search_read_answer_and_evaluate() {
    let served = Served::start(options);
    let client = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let start = call(&served, "initialize", &client);
    assert_eq!(start["result"]["serverInfo"]["name"], "sporran");
    let tools = call(&served, "tools/list", &json!({}));
    let names: Vec<&str> = tools["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["search", "get_document", "answer", "evaluate_run"]);
    let tool = |name: &str, arguments: Value| {
        call(&served, "tools/call", &json!({"name": name, "arguments": arguments}))["result"].clone()
    };
    let found = tool("search", json!({"query": "steel bridges"}));
    assert_eq!(found["structuredContent"]["candidates"][0]["docid"], "1#1");
    let read = tool("get_document", json!({"id": "1#1"}));
    assert_eq!(read["structuredContent"]["doc"]["contents"], "Mira Oberlin\nShe built bridges of steel.");
    let answer = tool("answer", json!({"question": "Who built bridges?", "top": 1}));
    assert_eq!(answer["structuredContent"]["provenance"][0]["id"], "1#1");
    let run = tool("evaluate_run", json!({"run": "first"}));
    assert_eq!(run["structuredContent"]["files"][0]["scores"]["Rprec"]["mean"], 1.0);
    // A wrong call is a result that says what is wrong.
    let wrong = tool("evaluate_run", json!({"run": "/etc"}));
    assert_eq!(wrong["isError"], true);
    assert_eq!(wrong["content"][0]["text"], "there is no run `/etc`; there are `first`");
    let wrong = tool("search", json!({"query": "x", "path": "/"}));
    assert!(wrong["content"][0]["text"].as_str().unwrap().contains("unknown field `path`"), "{wrong}");
}

#[test]
fn a_refused_request_of_the_protocol_has_an_error_in_json() {
    let served = Served::start(options);
    let json = ("content-type", "application/json");
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let all = ("accept", "application/json, text/event-stream");
    for (method, headers, body, code, expected) in [
        (
            "POST",
            &[json, ("accept", "text/plain")][..],
            ping.as_str(),
            406,
            "`accept: application/json, text/event-stream`",
        ),
        ("POST", &[json], &ping, 406, "`accept: "),
        ("POST", &[all, ("content-type", "text/plain")], &ping, 415, "`content-type: application/json`"),
        ("GET", &[all], "", 405, "Method Not Allowed"),
    ] {
        let reply = served.send(method, "/mcp", headers, body);
        assert_eq!(reply.header("content-type").as_deref(), Some("application/json"), "{expected}");
        let (found, error) = status(&reply);
        assert!(found == code && error.as_str().is_some_and(|it| it.contains(expected)), "{found}: {error}");
    }
    for (body, code) in [("{", -32700), ("", -32700), ("[]", -32600), (r#"{"jsonrpc":"2.0","id":1}"#, -32600)]
    {
        let reply = served.send("POST", "/mcp", &[all, json], body);
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &code.into()), "{}", reply.text);
    }
    // Notifications are taken without an answer.
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(served.send("POST", "/mcp", &[all, json], notification).status, 202);
}

#[test]
fn pages_of_other_sites_may_not_call_the_protocol() {
    let served = Served::start(options);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let call = |extra: &[(&str, &str)]| {
        let all = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        served.send("POST", "/mcp", &[&all[..], extra].concat(), &ping)
    };
    let own = format!("http://{}", served.address);
    for origin in [own.as_str(), "http://localhost:6274"] {
        assert_eq!(call(&[("origin", origin)]).status, 200, "{origin}");
    }
    for extra in [
        &[("origin", "http://attacker.example")][..],
        &[("origin", "null")],
        // A name that leads to this address.
        &[("origin", "http://attacker.example"), ("host", "attacker.example")],
        &[("host", "attacker.example")],
    ] {
        let (found, error) = status(&call(extra));
        assert!(found == 403 && error.is_string(), "{extra:?}: {found} {error}");
    }
    for method in ["GET", "DELETE", "OPTIONS"] {
        let found = served.send(method, "/mcp", &[("origin", "http://attacker.example")], "");
        assert_eq!(found.status, 403, "{method}");
    }
}

#[test]
fn documents_are_resources() {
    let served = Served::start(options);
    let listed = call(&served, "resources/list", &json!({}));
    let resources = listed["result"]["resources"].as_array().unwrap();
    assert_eq!((resources.len(), &resources[1]["uri"]), (3, &json!("sporran://pages.jsonl/2")));
    let read = |uri: &str| call(&served, "resources/read", &json!({"uri": uri}));
    let text = read("sporran://pages.jsonl/1")["result"]["contents"][0]["text"].clone();
    assert!(text.as_str().unwrap().ends_with("\n\nWork.\n\nShe built bridges of steel."), "{text}");
    assert_eq!(
        read("sporran://pages.jsonl/1%231")["result"]["contents"][0]["text"],
        "She built bridges of steel."
    );
    for uri in
        ["file:///etc/passwd", "sporran://pages.jsonl/9", "sporran://other/1", "sporran://pages.jsonl/..%2Fx"]
    {
        assert!(read(uri)["error"]["message"].as_str().unwrap().contains("there is no"), "{uri}");
    }
}
