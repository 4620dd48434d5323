//! The description of all endpoints, and the responses that it promises.

use serde_json::{Value, json};
use sporran_pipeline::workflows::answer::AskOptions;
use sporran_server::{Key, Limits, ServerOptions};

use crate::common::{Reply, Served, documents, models, reader};

const KEY: &str = "0123456789abcdef";

/// Follows references inside of the document.
fn resolved<'d>(document: &'d Value, mut value: &'d Value) -> &'d Value {
    while let Some(reference) = value["$ref"].as_str() {
        let place = reference.strip_prefix('#').unwrap();
        value = document.pointer(place).unwrap_or_else(|| panic!("{reference}"));
    }
    value
}

/// What is wrong with a value for a schema. It knows the words that the document uses.
fn wrong(document: &Value, schema: &Value, value: &Value, place: &str) -> Option<String> {
    let schema = resolved(document, schema);
    let some = |key: &str| schema[key].as_array().filter(|all| !all.is_empty());
    if value.is_null() && schema["nullable"] == true {
        return None;
    }
    if let Some(all) = some("allOf") {
        return all.iter().find_map(|part| wrong(document, part, value, place));
    }
    if let Some(any) = some("anyOf").or_else(|| some("oneOf")) {
        let found: Vec<String> = any.iter().map_while(|part| wrong(document, part, value, place)).collect();
        return (found.len() == any.len()).then(|| format!("{place}: none of {found:?}"));
    }
    let is = match schema["type"].as_str() {
        None => true,
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some(other) => panic!("{other}"),
    };
    if !is {
        return Some(format!("{place}: {value} is no {}", schema["type"]));
    }
    for field in schema["required"].as_array().into_iter().flatten() {
        if value.get(field.as_str().unwrap()).is_none() {
            return Some(format!("{place}: lacks {field}"));
        }
    }
    let properties = schema["properties"].as_object();
    let mut fields = value.as_object().into_iter().flatten();
    let wrong_field = fields.find_map(|(name, value)| {
        let own = properties
            .and_then(|all| all.get(name))
            .or_else(|| schema["additionalProperties"].as_object().map(|_| &schema["additionalProperties"]));
        own.and_then(|own| wrong(document, own, value, &format!("{place}.{name}")))
    });
    let items = value.as_array().into_iter().flatten().enumerate();
    let mut items = items.filter_map(|(at, item)| match &schema["items"] {
        Value::Null => None,
        own => wrong(document, own, item, &format!("{place}[{at}]")),
    });
    wrong_field.or_else(|| items.next())
}

/// Checks that the document describes a response.
fn check(document: &Value, path: &str, method: &str, reply: &Reply) {
    let responses = &document["paths"][path][method]["responses"];
    let found = &responses[reply.status.to_string()];
    assert!(found.is_object(), "{method} {path}: {} is not described: {}", reply.status, reply.text);
    let content = &resolved(document, found)["content"];
    let kind = reply.header("content-type").unwrap_or_default();
    let Some(content) = content.as_object().filter(|all| !all.is_empty()) else { return };
    let own = content.get(&kind).unwrap_or_else(|| panic!("{method} {path}: {kind} is not described"));
    if kind == "application/json" {
        assert_eq!(wrong(document, &own["schema"], &reply.json(), path), None, "{}", reply.text);
    }
}

fn served() -> Served {
    Served::start(|folder| {
        let mount = AskOptions { generator: Some(reader()), max_new_tokens: 8, ..documents(folder) };
        let limits = Limits { body: 2000, hits: 10, ..Limits::default() };
        ServerOptions { mounts: vec![mount], models: models(), limits, ..ServerOptions::new() }
    })
}

#[test]
fn every_response_is_as_described() {
    let served = served();
    let document = served.get("/openapi.json").json();
    let user = json!([{ "role": "user", "content": "Where was Oberlin born?" }]);
    let asked = json!({ "question": "Where was Oberlin born?", "trace": true });
    let posts = [
        ("/v1/answer", asked),
        ("/embed", json!({ "inputs": ["a", "b"] })),
        ("/", json!({ "inputs": { "source_sentence": "a", "sentences": ["b"] } })),
        ("/embed_all", json!({ "inputs": "a" })),
        ("/similarity", json!({ "inputs": { "source_sentence": "a", "sentences": ["b"] } })),
        ("/rerank", json!({ "query": "a", "texts": ["b"], "return_text": true })),
        ("/predict", json!({ "inputs": "a" })),
        ("/tokenize", json!({ "inputs": "a" })),
        ("/v1/embeddings", json!({ "input": "a" })),
        ("/v1/embeddings", json!({ "input": "a", "encoding_format": "base64" })),
        ("/v1/completions", json!({ "prompt": "What is tea?" })),
        ("/v1/chat/completions", json!({ "messages": user, "sporran": { "trace": true } })),
        ("/v1/chat/completions", json!({ "messages": user, "stream": true })),
        ("/v1/rerank", json!({ "query": "a", "documents": ["b"] })),
        ("/v2/rerank", json!({ "query": "a", "documents": ["b"] })),
        ("/retrieve", json!({ "queries": ["tea"], "return_scores": true })),
    ];
    for (path, body) in &posts {
        let reply = served.post(path, body);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        check(&document, path, "post", &reply);
    }
    for (path, asked) in [
        ("/v1/{index}/search", "/v1/pages.jsonl/search?query=tea"),
        ("/v1/{index}/doc/{id}", "/v1/pages.jsonl/doc/1"),
        ("/v1/models", "/v1/models"),
        ("/v1/models/{id}", "/v1/models/sentence"),
        ("/v1/mounts", "/v1/mounts"),
        ("/info", "/info"),
        ("/health", "/health"),
        ("/ready", "/ready"),
        ("/metrics", "/metrics"),
        ("/openapi.json", "/openapi.json"),
        ("/browse", "/browse"),
        ("/browse/documents", "/browse/documents"),
        ("/browse/document", "/browse/document?id=1%231"),
        ("/", "/"),
        ("/page/app.js", "/page/app.js"),
    ] {
        let reply = served.get(asked);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        check(&document, path, "get", &reply);
    }
    let headers = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    for (headers, body) in [
        (&headers[..], list.as_str()),
        (&headers, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
        (&headers, "{"),
        (&headers[..1], &list),
        (&[], &list),
        (&[("origin", "null")], &list),
    ] {
        check(&document, "/mcp", "post", &served.send("POST", "/mcp", headers, body));
    }
}

#[test]
fn every_refusal_is_as_described() {
    let served = served();
    let document = served.get("/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.contains_key("/mcp"));
    let json = [("content-type", "application/json")];
    let long = format!("\"{}\"", "a".repeat(3000));
    for (path, operations) in paths {
        let own = path
            .replace("{index}", "none")
            .replace("{id}", "none")
            .replace("{run}", "none")
            .replace("{kb}", "none");
        for method in operations.as_object().unwrap().keys() {
            let verb = method.to_uppercase();
            let refused = |headers: &[(&str, &str)], body: &str| {
                let reply = served.send(&verb, &own, headers, body);
                check(&document, path, method, &reply);
                reply.status
            };
            assert_eq!(refused(&[("host", "attacker.example")], ""), 403, "{path}");
            assert_eq!(refused(&json, &long), 413, "{path}");
            if method == "post" {
                // 404 where nothing is mounted for it.
                assert!([400, 404, 422].contains(&refused(&json, "{}")), "{path}");
                assert_eq!(refused(&json, "{"), 400, "{path}");
                assert_eq!(
                    refused(&[("content-type", "text/plain")], "{}"),
                    if path == "/mcp" { 406 } else { 415 }
                );
            } else {
                refused(&[], "");
            }
        }
    }
    let keyed = Served::start(|folder| ServerOptions {
        mounts: vec![documents(folder)],
        key: Some(Key::new(KEY)),
        ..ServerOptions::new()
    });
    for (path, method) in [
        ("/v1/answer", "post"),
        ("/v1/models", "get"),
        ("/embed", "post"),
        ("/v2/rerank", "post"),
        ("/mcp", "post"),
        ("/metrics", "get"),
    ] {
        let reply = keyed.send(&method.to_uppercase(), path, &[], "");
        assert_eq!(reply.status, 401, "{path}");
        check(&document, path, method, &reply);
    }
}
