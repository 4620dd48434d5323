//! The lines of requests in the log.

use std::{
    io::{self, Read, Write},
    sync::{Mutex, OnceLock},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sporran_pipeline::workflows::answer::AskOptions;
use sporran_server::{Limits, ServerOptions};
use tracing_subscriber::filter::LevelFilter;

use crate::common::{Served, documents, fixture, models};

static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps what this process logs.
fn keep() {
    static KEPT: OnceLock<()> = OnceLock::new();
    KEPT.get_or_init(|| {
        let log = tracing_subscriber::fmt().json().with_max_level(LevelFilter::INFO).with_writer(|| Log);
        log.init();
    });
}

/// The line of a request by its id, once it is written.
fn line(id: &str) -> Value {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let text = String::from_utf8(WRITTEN.lock().unwrap().clone()).unwrap();
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(found) = lines.find(|line| line["fields"]["id"] == id) {
            return found["fields"].clone();
        }
        assert!(Instant::now() < end, "no line of {id}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn seconds(line: &Value) -> [f64; 2] {
    ["head_seconds", "seconds"].map(|key| line[key].as_f64().unwrap_or(f64::NAN))
}

#[test]
fn a_request_whose_client_leaves_has_a_line() {
    keep();
    let limits = Limits { window: Duration::from_millis(500), ..Limits::default() };
    let served = Served::start(|_| ServerOptions { models: models(), limits, ..ServerOptions::new() });
    let body = json!({ "inputs": "a" }).to_string();
    let headers = [("content-type", "application/json"), ("x-request-id", "left-1")];
    let stream = served.begin("POST", "/embed", &headers, &body);
    thread::sleep(Duration::from_millis(100));
    drop(stream);
    let found = line("left-1");
    assert_eq!((&found["status"], &found["path"]), (&json!(499), &json!("/embed")));
    assert_eq!(found["error"], "the connection ended before the response");
    assert!(found.get("head_seconds").is_none() && found["seconds"].as_f64().unwrap() > 0.05, "{found}");
    assert_eq!(served.metric(r#"sporran_requests_total{method="POST",route="/embed",status="499"}"#), 1.0);
    // The window that this request opened ends before the next one.
    thread::sleep(limits.window);
    // One that is answered has no error.
    served.send(
        "POST",
        "/embed",
        &[("content-type", "application/json"), ("x-request-id", "whole-1")],
        &body,
    );
    let found = line("whole-1");
    assert_eq!((&found["status"], found.get("error")), (&json!(200), None), "{found}");
    let [head, all] = seconds(&found);
    assert!(0.4 < head && head <= all, "{found}");
    // What is counted while it is answered is that request alone.
    assert_eq!(served.metric("sporran_open_requests"), 1.0);
}

fn writing(limits: Limits) -> Served {
    Served::start(|folder| {
        let mount = AskOptions { generator: Some(fixture("llama")), ..documents(folder) };
        ServerOptions { mounts: vec![mount], limits, ..ServerOptions::new() }
    })
}

#[test]
fn the_line_of_a_stream_has_the_time_to_its_head_and_to_its_end() {
    keep();
    let (window, stream_time) = (Duration::from_millis(700), Duration::from_millis(300));
    let body =
        json!({ "prompt": "the king", "stream": true, "max_tokens": 3, "sporran": { "retrieve": false } })
            .to_string();
    let headers = |id| [("content-type", "application/json"), ("x-request-id", id)];
    let served = writing(Limits { window, ..Limits::default() });
    served.send("POST", "/v1/completions", &headers("stream-1"), &body);
    let found = line("stream-1");
    let [head, all] = seconds(&found);
    assert!(head < 0.4 && all > 0.6 && found.get("error").is_none(), "{found}");
    // A client that leaves while it is written.
    let mut stream = served.begin("POST", "/v1/completions", &headers("stream-2"), &body);
    stream.read_exact(&mut [0; 12]).unwrap();
    drop(stream);
    let found = line("stream-2");
    assert_eq!(
        (&found["status"], &found["error"]),
        (&json!(200), &json!("the connection ended before the response"))
    );
    // An error in a stream is an event, and is in the log.
    let served = writing(Limits { window, stream_time, ..Limits::default() });
    served.send("POST", "/v1/completions", &headers("stream-3"), &body);
    assert_eq!(line("stream-3")["error"], "the stream took longer than 0.3 s");
}

#[test]
fn the_line_of_a_failure_has_its_error_for_every_api() {
    keep();
    let served =
        Served::start(|folder| ServerOptions { mounts: vec![documents(folder)], ..ServerOptions::new() });
    let all = ("accept", "application/json, text/event-stream");
    let call = |name: &str, arguments: Value| {
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}).to_string()
    };
    let read = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "file:///x"}})
        .to_string();
    for (id, path, accept, body, status, error) in [
        (
            "e-1",
            "/v1/answer",
            all,
            r#"{"question": "a", "top": 0}"#.to_owned(),
            400,
            "`top`: expected 1 to 1000, found 0",
        ),
        (
            "e-2",
            "/mcp",
            ("accept", "text/plain"),
            call("search", json!({})),
            406,
            "expected the header `accept: ",
        ),
        ("e-3", "/mcp", all, "{".to_owned(), 400, "the message is not JSON"),
        (
            "e-4",
            "/mcp",
            all,
            call("search", json!({"query": "a", "index": "x"})),
            200,
            "there is no index `x`",
        ),
        ("e-5", "/mcp", all, call("delete", json!({})), 200, "there is no tool `delete`"),
        ("e-6", "/mcp", all, read, 200, "there is no resource `file:///x`"),
    ] {
        let headers = [("content-type", "application/json"), accept, ("x-request-id", id)];
        assert_eq!(served.send("POST", path, &headers, &body).status, status, "{id}");
        let found = line(id);
        assert!(found["error"].as_str().is_some_and(|text| text.contains(error)), "{id}: {found}");
    }
}
