//! The beginning and the end of a server, its limits, and what it refuses.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use sporran_server::{Error, Key, Limits, Server, ServerOptions, Stop};

use crate::common::{Served, documents, models};

fn with_models(limits: Limits) -> Served {
    Served::start(|_| ServerOptions { models: models(), limits, ..ServerOptions::new() })
}

/// Batches wait, so that requests are in the queue for a known time.
fn slow(milliseconds: u64) -> Limits {
    Limits { window: Duration::from_millis(milliseconds), ..Limits::default() }
}

#[test]
fn a_server_says_that_it_runs_and_what_it_has() {
    let mut served =
        Served::start(|folder| ServerOptions { mounts: vec![documents(folder)], ..ServerOptions::new() });
    assert_eq!(served.get("/health").json()["status"], "ok");
    assert_eq!(served.get("/ready").status, 200);
    let mounts = served.get("/v1/mounts").json();
    let expected = json!({ "mounts": [
        { "name": "pages.jsonl", "kind": "answer", "abilities": ["search"], "documents": 3, "passages": 4 },
    ] });
    assert_eq!(mounts, expected);
    let page = served.get("/");
    assert!(page.text.starts_with("<!doctype html>") && page.header("content-security-policy").is_some());
    let description = served.get("/openapi.json").json();
    for path in ["/v1/answer", "/embed", "/v1/chat/completions", "/v1/{index}/doc/{id}", "/openapi.json"] {
        assert!(description["paths"].get(path).is_some(), "{path}");
    }
    let found = served.get("/v1/nothing/here/at/all");
    assert_eq!((found.status, found.header("x-content-type-options").as_deref()), (404, Some("nosniff")));
    assert_eq!(served.send("GET", "/v1/answer", &[], "").status, 405);
    let id = served.send("GET", "/health", &[("x-request-id", "mine-1")], "");
    assert_eq!(id.header("x-request-id").as_deref(), Some("mine-1"));
    assert!(served.get("/health").header("x-request-id").is_some_and(|id| !id.is_empty()));
    let metric = r#"sporran_requests_total{method="GET",route="/health",status="200"}"#;
    assert!(served.metric(metric) >= 3.0, "{}", served.get("/metrics").text);
    // Paths that are no routes do not make series of their own.
    assert!(!served.get("/metrics").text.contains("nothing"));
    served.end().unwrap();
    assert!(TcpStream::connect(served.address).is_err());
}

#[test]
fn a_server_needs_something_to_serve_and_names_that_differ() {
    let error = Server::open(ServerOptions::new(), &Stop::new(), &mut |_| {}).err().unwrap();
    assert!(matches!(error, Error::Nothing), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let mounts = vec![documents(folder.path()), documents(folder.path())];
    let error = Server::open(ServerOptions { mounts, ..ServerOptions::new() }, &Stop::new(), &mut |_| {});
    assert!(matches!(error, Err(Error::Name { name }) if name == "pages.jsonl"));
}

#[test]
fn requests_need_the_key_in_one_of_two_headers() {
    let key = Key::new("0123456789abcdef");
    let served =
        Served::start(|_| ServerOptions { models: models(), key: Some(key), ..ServerOptions::new() });
    let body = json!({ "inputs": "who wrote the song" }).to_string();
    let post = |path: &str, header: (&str, &str)| {
        served.send("POST", path, &[("content-type", "application/json"), header], &body)
    };
    assert_eq!(post("/embed", ("authorization", "Bearer 0123456789abcdef")).status, 200);
    assert_eq!(post("/embed", ("authorization", "bearer 0123456789abcdef")).status, 200);
    assert_eq!(post("/embed", ("x-api-key", "0123456789abcdef")).status, 200);
    for header in
        [("x-api-key", "0123456789abcdeX"), ("authorization", "Basic 0123456789abcdef"), ("x-other", "y")]
    {
        let refused = post("/embed", header);
        assert_eq!((refused.status, refused.header("www-authenticate").as_deref()), (401, Some("Bearer")));
        assert_eq!(refused.json()["error_type"], "Validation");
    }
    let refused = post("/v1/embeddings", ("x-api-key", "wrong")).json();
    assert_eq!(refused["error"]["code"], "invalid_api_key");
    // The page has no data, and a supervisor has no key.
    for path in ["/", "/page/app.js", "/health", "/ready"] {
        assert_eq!(served.get(path).status, 200, "{path}");
        assert_eq!(served.send("HEAD", path, &[], "").status, 200, "{path}");
    }
    for path in ["/metrics", "/v1/mounts", "/openapi.json"] {
        assert_eq!(served.get(path).status, 401, "{path}");
    }
}

#[test]
fn wrong_bodies_are_named_in_the_form_of_their_api() {
    let limits = Limits { body: 1000, ..Limits::default() };
    let served = with_models(limits);
    let send =
        |path: &str, kind: &str, body: &str| served.send("POST", path, &[("content-type", kind)], body);
    let found = send("/embed", "text/plain", r#"{"inputs": "a"}"#);
    assert_eq!(found.status, 415);
    let found = send("/v1/rerank", "application/json", r#"{"query": "a", "documents": ["b", {"txt": 1}]}"#);
    assert_eq!(found.status, 400);
    assert!(found.json()["detail"].as_str().unwrap().starts_with("`documents[1]`: "), "{}", found.text);
    let found = send("/v2/rerank", "application/json; charset=utf-8", "{");
    assert!(
        found.status == 400 && found.json()["message"].as_str().unwrap().starts_with("the body is not JSON")
    );
    let found = send("/embed", "application/json", "");
    assert_eq!((found.status, found.json()["error_type"].as_str()), (400, Some("Validation")));
    let long = json!({ "inputs": "a".repeat(2000) }).to_string();
    assert_eq!(send("/embed", "application/json", &long).status, 413);
    let found = send("/v1/answer", "application/json", r#"{"question": "a", "topp": 3}"#);
    assert!(
        found.status == 400 && found.json()["error"].as_str().unwrap().contains("topp"),
        "{}",
        found.text
    );
    let found = send("/v1/answer", "application/json", r#" ["a", null, null, false]"#);
    assert_eq!(
        (found.status, found.json()["error"].as_str()),
        (400, Some("expected a JSON object, found a list"))
    );
    for (path, body) in [
        ("/embed", r#"{"inputs": 3}"#),
        ("/v1/embeddings", r#"{"input": 3}"#),
        ("/v1/rerank", r#"{"query": "a", "documents": [3]}"#),
        ("/", r#"{"inputs": 3}"#),
    ] {
        let found = send(path, "application/json", body);
        assert!(found.status >= 400 && !found.text.contains("variant"), "{path}: {}", found.text);
        assert!(found.text.contains("expected "), "{path}: {}", found.text);
    }
    let found = send("/v1/answer", "application/json", r#"{"question": "a"}"#);
    assert_eq!(
        (found.status, found.json()["error"].as_str()),
        (404, Some("no index, generator or knowledge base for questions is mounted"))
    );
}

#[test]
fn a_body_that_says_that_it_is_too_long_is_refused_at_once() {
    let served = with_models(Limits { body: 1000, ..Limits::default() });
    for path in ["/embed", "/mcp", "/v1/nothing", "/v1/chat/completions"] {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n\r\n"
        );
        // No byte of the body follows.
        stream.write_all(head.as_bytes()).unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 413", "{path}");
    }
}

#[test]
fn a_body_may_be_compressed_with_gzip() {
    let served = with_models(Limits { body: 1000, ..Limits::default() });
    let gzip = |text: &str| {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        writer.write_all(text.as_bytes()).unwrap();
        writer.finish().unwrap()
    };
    let send = |path: &str, encoding: &str, body: &[u8]| {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-encoding: {encoding}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text[9..12].parse::<u16>().unwrap()
    };
    let small = gzip(&json!({ "inputs": "a" }).to_string());
    assert_eq!(send("/embed", "gzip", &small), 200);
    assert_eq!(send("/mcp", "gzip", &gzip(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)), 200);
    let long = gzip(&json!({ "inputs": "a".repeat(2000) }).to_string());
    for path in ["/embed", "/mcp"] {
        assert_eq!(
            (send(path, "gzip", &long), send(path, "br", &small), send(path, "gzip", b"{}")),
            (413, 415, 400)
        );
    }
}

#[test]
fn a_response_is_compressed_as_the_client_accepts_it() {
    let served = with_models(Limits::default());
    let get = |path: &str, encoding: &str| {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // Without chunks.
        let head = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\naccept-encoding: {encoding}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        (head, bytes[end + 4..].to_vec())
    };
    let (head, plain) = get("/openapi.json", "identity");
    assert!(!head.contains("content-encoding") && plain.len() > 10_000, "{head}");
    let (head, packed) = get("/openapi.json", "gzip");
    assert!(head.contains("content-encoding: gzip") && head.contains("vary: accept-encoding"), "{head}");
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut text).unwrap();
    assert!(text == plain && packed.len() < plain.len() / 3, "{} of {}", packed.len(), plain.len());
    let (head, packed) = get("/openapi.json", "gzip, br");
    assert!(head.contains("content-encoding: br") && packed.len() < plain.len() / 3, "{head}");
    let (head, _) = get("/health", "gzip");
    assert!(head.starts_with("http/1.0 200") && !head.contains("content-encoding"), "{head}");
}

#[test]
fn a_method_that_a_path_does_not_take_is_told_those_that_it_takes() {
    let served = with_models(Limits::default());
    let found = served.send("GET", "/v1/answer", &[], "");
    assert_eq!((found.status, found.header("allow").as_deref()), (405, Some("POST")));
}

#[test]
fn a_name_of_another_site_is_refused() {
    let served = with_models(Limits::default());
    let found = served.send("GET", "/health", &[("host", "attacker.example")], "");
    assert_eq!(found.status, 403);
    assert_eq!(served.send("GET", "/health", &[("host", "localhost:1")], "").status, 200);
    // No other origin may read or send.
    let asked = [("origin", "http://attacker.example"), ("access-control-request-method", "POST")];
    let found = served.send("OPTIONS", "/v1/answer", &asked, "");
    assert!(found.status == 405 && found.header("access-control-allow-origin").is_none());
}

#[test]
fn too_much_is_refused_with_the_time_of_another_try() {
    let served = with_models(Limits { waiting: 40, ..slow(400) });
    // About 31 tokens, of which one request fits and two do not.
    let body = json!({ "inputs": "a".repeat(120) });
    thread::scope(|scope| {
        let first = scope.spawn(|| served.post("/embed", &body));
        thread::sleep(Duration::from_millis(100));
        let second = served.post("/embed", &body);
        let retry_after: u64 = second.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&retry_after));
        assert_eq!((second.status, second.json()["error_type"].as_str()), (429, Some("Overloaded")));
        assert_eq!(first.join().unwrap().status, 200);
    });
    assert_eq!(served.metric(r#"sporran_refused_total{worker="embed"}"#), 1.0);
    let never = served.post("/embed", &json!({ "inputs": "a".repeat(400) }));
    assert_eq!((never.status, never.header("retry-after")), (413, None));
}

#[test]
fn a_client_that_goes_frees_its_place() {
    let served = with_models(slow(400));
    let body = json!({ "inputs": "who wrote the song" }).to_string();
    let stream = served.begin("POST", "/embed", &[("content-type", "application/json")], &body);
    thread::sleep(Duration::from_millis(100));
    drop(stream);
    let end = Instant::now() + Duration::from_secs(20);
    let cancelled = || served.metric(r#"sporran_cancelled_total{worker="embed"}"#);
    while cancelled() < 1.0 {
        assert!(Instant::now() < end, "{}", served.get("/metrics").text);
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(served.metric(r#"sporran_waiting_tokens{worker="embed"}"#), 0.0);
    // `/metrics` itself is open.
    assert_eq!(served.metric("sporran_open_requests"), 1.0);
}

#[test]
fn an_answer_that_takes_too_long_is_given_up() {
    let served = with_models(Limits { time: Duration::from_millis(100), ..slow(1000) });
    let found = served.post("/embed", &json!({ "inputs": "who wrote the song" }));
    assert_eq!((found.status, found.header("retry-after").as_deref()), (503, Some("1")));
}

#[test]
fn what_was_begun_is_answered_after_the_stop() {
    let mut served = with_models(slow(500));
    let body = json!({ "inputs": "who wrote the song" }).to_string();
    let mut stream = served.begin("POST", "/embed", &[("content-type", "application/json")], &body);
    thread::sleep(Duration::from_millis(150));
    served.stop.now();
    thread::sleep(Duration::from_millis(100));
    assert!(TcpStream::connect(served.address).is_err());
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    served.end().unwrap();
}

#[test]
fn documents_that_changed_are_served_after_a_reload() {
    let served = Served::start(|folder| {
        let notes = folder.join("notes");
        std::fs::create_dir(&notes).unwrap();
        std::fs::write(notes.join("a.md"), "# Tea\n\nTea is hot.\n").unwrap();
        let notes = sporran_pipeline::workflows::answer::AskOptions::new(vec![notes], folder.join("cache"));
        ServerOptions { mounts: vec![notes], ..ServerOptions::new() }
    });
    let hits = || served.get("/v1/notes/search?query=coffee").json()["candidates"].as_array().unwrap().len();
    assert_eq!(hits(), 0);
    std::fs::write(served.folder.path().join("notes/b.md"), "# Coffee\n\nCoffee is black.\n").unwrap();
    served.state.reload(&mut |_| {}).unwrap();
    assert_eq!(hits(), 1);
    // Something that cannot be opened leaves what was there.
    std::fs::remove_dir_all(served.folder.path().join("notes")).unwrap();
    assert!(served.state.reload(&mut |_| {}).is_err());
    assert_eq!(hits(), 1);
}

#[test]
fn a_config_that_follows_itself_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let source = documents(folder.path()).sources.remove(0);
    let config = |name: &str, then: &str| {
        let path = folder.path().join(name);
        let text = format!(
            "workflow = \"answer\"\nname = \"{name}\"\noutput = \"{folder}\"\nthen = [{then:?}]\n[source]\n\
             path = {source:?}\nindexes = \"{folder}/{name}-indexes\"\n[retriever]\nkind = \"bm25\"\n",
            folder = folder.path().display()
        );
        std::fs::write(&path, text).unwrap();
        path
    };
    let path = |name: &str| folder.path().join(name).display().to_string();
    let open = |config| {
        let mounts = vec![sporran_pipeline::workflows::answer::AskOptions::new(
            vec![config],
            folder.path().join("cache"),
        )];
        Server::open(ServerOptions { mounts, ..ServerOptions::new() }, &Stop::new(), &mut |_| {})
            .err()
            .unwrap()
    };
    let own = open(config("own.toml", &path("own.toml")));
    assert!(matches!(&own, Error::Circle { path } if path.ends_with("own.toml")), "{own}");
    let (first, _) = (config("a.toml", &path("b.toml")), config("b.toml", &path("a.toml")));
    let circle = open(first);
    assert!(matches!(&circle, Error::Circle { path } if path.ends_with("a.toml")), "{circle}");
}
