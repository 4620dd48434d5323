//! A client against an endpoint that misbehaves.

mod server;

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sporran_remote::{
    Assembly, Call, Client, Endpoint, Error, RequestOptions, Result, Route, Streamed, Usage, usage,
};

use server::{Reply, Server};

/// A variable that Cargo sets, in place of one with a key.
const VARIABLE: &str = "CARGO_MANIFEST_DIR";

fn key() -> String {
    std::env::var(VARIABLE).unwrap()
}

fn options(cache: &Path) -> RequestOptions {
    RequestOptions {
        retries: 2,
        first_wait: 0.001,
        timeout: 5.0,
        cache: cache.to_owned(),
        ..RequestOptions::default()
    }
}

fn client(server: &Server, requests: &RequestOptions) -> Client {
    let endpoint =
        Endpoint { base_url: &server.url, model: "m", api_key_env: Some(VARIABLE), requests, seed: 1 };
    Client::open(&endpoint).unwrap()
}

fn call(number: usize) -> Call {
    Call { route: Route::Chat, body: json!({ "model": "m", "n": number }) }
}

/// The number that a response has.
fn number(response: &Value) -> Result<u64, String> {
    response["n"].as_u64().ok_or_else(|| format!("`n`: expected a number, found {}", response["n"]))
}

fn ask(client: &Client, at: usize) -> Result<u64> {
    client.ask(&call(at), &number, &AtomicBool::new(false))
}

/// The number of stored responses in a folder.
fn files(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let is_response = |path: &Path| path.extension().is_some_and(|ending| ending == "json");
    let count = |path: PathBuf| if path.is_dir() { files(&path) } else { usize::from(is_response(&path)) };
    entries.map(|entry| count(entry.unwrap().path())).sum()
}

fn texts(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { texts(&path) } else { fs::read_to_string(path).unwrap() }).collect()
}

fn own(server: &Server) -> Usage {
    usage().into_iter().find(|usage| usage.base_url == server.url).unwrap()
}

#[test]
fn what_can_pass_is_repeated_and_the_cache_spares_the_second_request() {
    let good =
        || Reply::Json(json!({ "n": 7, "usage": { "prompt_tokens": 1000, "completion_tokens": 500 } }));
    for bad in [
        Reply::Status(429, "Retry-After: 0", "{}".into()),
        Reply::Status(500, "", "<html>".into()),
        Reply::Status(503, "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT", String::new()),
        Reply::Status(200, "", "{\"n\": NaN}".into()),
        Reply::Status(200, "", "{\"n\": 1".into()),
        Reply::Json(json!({ "error": { "message": "overloaded" } })),
        Reply::Cut,
        Reply::Silence(Duration::ZERO),
    ] {
        let place = tempfile::tempdir().unwrap();
        let first = bad.clone();
        let server = Server::start(move |at, _| if at == 0 { first.clone() } else { good() });
        let requests =
            RequestOptions { input_price: Some(2.0), output_price: Some(4.0), ..options(place.path()) };
        let client = client(&server, &requests);
        assert_eq!(ask(&client, 0).unwrap(), 7, "{bad:?}");
        assert_eq!(ask(&client, 0).unwrap(), 7);
        assert_eq!(server.asked().len(), 2, "{bad:?}");
        let usage = own(&server);
        assert_eq!((usage.requests, usage.retries, usage.cached), (2, 1, 1));
        assert_eq!((usage.input_tokens, usage.output_tokens), (1000, 500));
        assert!((usage.cost.unwrap() - 0.004).abs() < 1e-12);
        assert_eq!(files(place.path()), 1);
    }
}

#[test]
fn what_does_not_pass_ends_in_an_error_and_stores_nothing() {
    let place = tempfile::tempdir().unwrap();
    for (reply, attempts, expected) in [
        (
            Reply::Status(500, "", "broken".into()),
            3,
            "no usable response after 3 attempts: status 500: broken",
        ),
        (Reply::Cut, 3, "no usable response after 3 attempts"),
        (Reply::Status(200, "", "{\"n\": NaN}".into()), 3, "expected JSON, found `{\"n\": NaN}`"),
        (Reply::Json(json!({ "m": 1 })), 1, "`n`: expected a number, found null"),
        (
            Reply::Json(json!({ "error": { "message": "overloaded" } })),
            3,
            "no usable response after 3 attempts: overloaded",
        ),
        (
            Reply::Status(429, "Retry-After: 999999999999999999999", "{}".into()),
            1,
            "and `longest-wait` is 120 s",
        ),
        (
            Reply::Status(401, "", r#"{"error": {"message": "bad key"}}"#.into()),
            1,
            "with status 401: bad key",
        ),
        (
            Reply::Status(307, "Location: http://127.0.0.1:1/", String::new()),
            1,
            "a redirect, which is not followed",
        ),
        (
            Reply::Status(429, "Retry-After: 4000", "{}".into()),
            1,
            "it asks for a wait of 4000 s, and `longest-wait` is 120 s",
        ),
    ] {
        let copy = reply.clone();
        let server = Server::start(move |_, _| copy.clone());
        let error = ask(&client(&server, &options(place.path())), 0).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(&server.url), "{error}");
        assert_eq!(server.asked().len(), attempts, "{reply:?}");
    }
    assert_eq!(files(place.path()), 0);
}

#[test]
fn a_slow_endpoint_and_a_closed_port_end_in_errors() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| Reply::Silence(Duration::from_secs(60)));
    let requests = RequestOptions { timeout: 0.05, retries: 1, ..options(place.path()) };
    let error = ask(&client(&server, &requests), 0).unwrap_err().to_string();
    assert!(error.contains("after 2 attempts: timeout"), "{error}");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let base_url = format!("http://{port}");
    let endpoint =
        Endpoint { base_url: &base_url, model: "m", api_key_env: None, requests: &requests, seed: 1 };
    let error = ask(&Client::open(&endpoint).unwrap(), 0).unwrap_err();
    assert!(matches!(&error, Error::Failed { attempts: 2, .. }), "{error}");
}

#[test]
fn an_unknown_model_is_named_with_those_that_exist() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(|_, asked| match asked.path.as_str() {
        "/v1/models" => Reply::Json(json!({ "data": [{ "id": "a" }, { "id": "b" }] })),
        _ => Reply::Status(404, "", r#"{"error": {"message": "no model `m`"}}"#.into()),
    });
    let client = client(&server, &options(place.path()));
    assert_eq!(client.models().unwrap(), ["a", "b"]);
    let error = ask(&client, 0).unwrap_err();
    assert!(error.is_input());
    let error = error.to_string();
    assert!(error.ends_with("with status 404: no model `m`; the endpoint has `a`, `b`"), "{error}");
}

#[test]
fn a_key_that_is_sent_back_is_in_no_error_and_no_file() {
    let place = tempfile::tempdir().unwrap();
    let echo = format!("wrong key {}, {}", key(), key().replace('/', "%2F"));
    let body = json!({ "error": { "message": echo } }).to_string();
    let padded = format!("{}{}", " x".repeat(245), key());
    for body in [body, echo.clone(), padded] {
        let server = Server::start(move |_, _| Reply::Status(403, "", body.clone()));
        let error = ask(&client(&server, &options(place.path())), 0).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("[key]") || text.contains(".."), "{text}");
        assert!(!text.contains(&key()) && !text.contains(&key()[..12]) && !text.contains("%2F"), "{text}");
        assert_eq!(server.asked()[0].authorization, format!("Bearer {}", key()));
    }
    let said = json!({ "n": 1, "text": format!("your key is {}", key()) });
    let server = Server::start(move |_, _| Reply::Json(said.clone()));
    ask(&client(&server, &options(place.path())), 0).unwrap();
    let stored = texts(place.path());
    assert!(stored.contains("your key is [key]") && !stored.contains(&key()), "{stored}");
}

#[test]
fn many_requests_keep_their_order_equal_ones_are_sent_once_and_a_later_run_sends_the_rest() {
    let place = tempfile::tempdir().unwrap();
    let is_down = std::sync::Arc::new(AtomicBool::new(true));
    let down = is_down.clone();
    let server = Server::start(move |_, asked| {
        let number = asked.body["n"].as_u64().unwrap();
        // Later requests are answered first.
        std::thread::sleep(Duration::from_millis(20 - 2 * number.min(10)));
        match number {
            5 if down.load(std::sync::atomic::Ordering::Relaxed) => Reply::Status(400, "", "no".into()),
            _ => Reply::Json(json!({ "n": number * 10 })),
        }
    });
    let requests = options(place.path());
    let calls: Vec<Call> = [0, 1, 2, 1, 3, 0, 4, 5, 6].map(call).into();
    let error = client(&server, &requests).ask_all(&calls, &number).unwrap_err();
    assert!(matches!(error, Error::Refused { status: 400, .. }), "{error}");
    let before = server.asked().len();
    assert!((6..=7).contains(&before), "{before}");
    is_down.store(false, std::sync::atomic::Ordering::Relaxed);
    let found = client(&server, &requests).ask_all(&calls, &number).unwrap();
    assert_eq!(found, [0, 10, 20, 10, 30, 0, 40, 50, 60]);
    // Number 5 is sent again, and 6 unless it was sent before.
    assert_eq!(server.asked().len(), 8);
    client(&server, &requests).ask_all(&calls, &number).unwrap();
    assert_eq!(server.asked().len(), 8);
    let uncached = RequestOptions { use_cache: false, ..requests };
    client(&server, &uncached).ask_all(&calls, &number).unwrap();
    assert_eq!(server.asked().len(), 15);
}

#[test]
fn all_threads_wait_when_an_endpoint_asks_for_it() {
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(|at, asked| match at {
        0 => Reply::Status(429, "Retry-After: 1", "{}".into()),
        _ => Reply::Json(json!({ "n": asked.body["n"] })),
    });
    let requests = RequestOptions { concurrency: 1, ..options(place.path()) };
    let client = client(&server, &requests);
    let start = Instant::now();
    assert_eq!(client.ask_all(&[call(0), call(1)], &number).unwrap(), [0, 1]);
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[test]
fn time_bounds_the_waits_for_a_rate_limit_and_not_the_number_of_repetitions() {
    let place = tempfile::tempdir().unwrap();
    for header in ["", "Retry-After: 0", "retry-after-ms: 5"] {
        let server = Server::start(move |at, _| match at {
            0..8 => Reply::Status(429, header, "{}".into()),
            8..10 => Reply::Status(500, "", String::new()),
            _ => Reply::Json(json!({ "n": 7 })),
        });
        let requests = RequestOptions { use_cache: false, longest_wait: 0.02, ..options(place.path()) };
        assert_eq!(requests.retries, 2);
        assert_eq!(ask(&client(&server, &requests), 0).unwrap(), 7, "{header}");
        assert_eq!(server.asked().len(), 11);
    }
    let server = Server::start(|_, _| Reply::Status(429, "", "slow down".into()));
    let requests = RequestOptions { rate_limit_wait: 0.2, longest_wait: 0.05, ..options(place.path()) };
    let start = Instant::now();
    let error = ask(&client(&server, &requests), 0).unwrap_err().to_string();
    assert!(
        error.contains("status 429: slow down; a request waits for 0.2 s in all (`rate-limit-wait`)"),
        "{error}"
    );
    assert!(server.asked().len() > 3 && start.elapsed() < Duration::from_secs(5), "{error}");
}

/// Joins the texts of a stream.
#[derive(Debug, Default)]
struct Joined {
    text: String,
    is_whole: bool,
    most: usize,
}

impl Assembly for Joined {
    fn part(&mut self, part: &Value) -> Result<ControlFlow<()>, String> {
        self.text += part["t"].as_str().ok_or("`t`: expected a text")?;
        self.is_whole |= part["end"] == true;
        Ok(if self.text.len() >= self.most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn is_whole(&self) -> bool {
        self.is_whole
    }

    fn response(&self) -> Value {
        json!({ "text": self.text })
    }
}

fn events(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| json!({ "t": text }).to_string()).collect()
}

#[test]
fn a_stream_is_joined_repeated_where_it_breaks_and_closed_where_it_is_ended() {
    let read = |response: &Value| Ok(response["text"].as_str().unwrap_or("none").to_owned());
    let place = tempfile::tempdir().unwrap();
    let whole = || {
        let mut all = events(&["a", "b"]);
        all.push("[DONE]".into());
        Reply::Events(all)
    };
    let stop = AtomicBool::new(false);
    for (number, bad) in [
        Reply::Events(events(&["a"])),
        Reply::Events(vec!["{\"t\": \"a\"".into()]),
        Reply::Events(vec![json!({ "error": { "message": "overloaded" } }).to_string()]),
        Reply::Events(vec![json!({ "u": 1 }).to_string()]),
        Reply::Status(503, "", String::new()),
    ]
    .into_iter()
    .enumerate()
    {
        let copy = bad.clone();
        let server = Server::start(move |at, _| if at == 0 { copy.clone() } else { whole() });
        let client = client(&server, &options(place.path()));
        let begin = || Joined { most: 100, ..Joined::default() };
        for _ in 0..2 {
            let found = client.stream(&call(number), &read, &begin, &stop).unwrap();
            assert!(matches!(&found, Streamed::Whole(text) if text == "ab"), "{bad:?}: {found:?}");
        }
        assert_eq!(server.asked().len(), 2, "{bad:?}");
        assert_eq!(server.asked()[0].body["stream"], true);
    }
    assert_eq!(files(place.path()), 5);

    // Without `[DONE]`, a part can say that it is the last one.
    let last = vec![json!({ "t": "x", "end": true }).to_string()];
    let server = Server::start(move |_, _| Reply::Events(last.clone()));
    let begin = || Joined { most: 100, ..Joined::default() };
    let found = client(&server, &options(place.path())).stream(&call(0), &read, &begin, &stop).unwrap();
    assert!(matches!(found, Streamed::Whole(text) if text == "x"));

    let server = Server::start(|_, _| Reply::SlowEvents(Duration::from_millis(5), events(&["a"; 10_000])));
    let begin = || Joined { most: 3, ..Joined::default() };
    let start = Instant::now();
    let found = client(&server, &options(place.path())).stream(&call(0), &read, &begin, &stop).unwrap();
    assert!(matches!(found, Streamed::Ended(parts) if parts.text == "aaa"));
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(files(place.path()), 6);
}

#[test]
fn wrong_settings_are_errors_without_the_key() {
    let requests = RequestOptions::default();
    let open = |base_url: &str, api_key_env: Option<&str>| {
        let endpoint = Endpoint { base_url, model: "m", api_key_env, requests: &requests, seed: 1 };
        Client::open(&endpoint).err().unwrap()
    };
    let error = open("localhost", None);
    assert!(error.is_input() && error.to_string().starts_with("base-url: expected an address"), "{error}");
    let error = open("http://localhost", Some("sk-a-real-key"));
    assert!(!format!("{error}{error:?}").contains("sk-a"), "{error}");
    let error = open("http://localhost", Some("SPORRAN_NO_SUCH_VARIABLE"));
    assert!(matches!(error, Error::Variable { .. }), "{error}");
}
