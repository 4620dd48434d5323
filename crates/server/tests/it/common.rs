//! A server on a free port with small models and documents, and a client.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::Value;
use sporran_pipeline::workflows::answer::AskOptions;
use sporran_server::{Result, ServedModels, Server, ServerOptions, State, Stop};

const PAGES: &str = r#"{"wikipedia_id":"1","wikipedia_title":"Mira Oberlin","text":["Mira Oberlin","Mira Oberlin was an engineer. Oberlin was born in Leipzig and studied in Vienna.","Section::::Work.","She built bridges of steel."],"lang":"en"}
{"wikipedia_id":"2","wikipedia_title":"Tea","text":["Tea","Tea is a drink. It is made of leaves and hot water."],"lang":"en","file":"drinks/tea.md","line":4}
{"wikipedia_id":"3","wikipedia_title":"Tee","text":["Tee","Tee is a drink of leaves."],"lang":"de"}
"#;

/// The folder of a small model of the crate `transformers`.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data").join(name)
}

/// A small reader that ships with the project.
pub(crate) fn reader() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/minikilt-reader")
}

/// Models that are served by themselves: an encoder, a reranker of one label and a classifier of two.
pub(crate) fn models() -> ServedModels {
    ServedModels {
        embedder: Some(fixture("encoders/sentence")),
        reranker: Some(fixture("encoders/bert-sequence")),
        classifier: Some(fixture("encoders/roberta-sequence")),
        ..ServedModels::default()
    }
}

/// Three documents in a folder with the name `pages.jsonl`.
pub(crate) fn documents(folder: &Path) -> AskOptions {
    let path = folder.join("pages.jsonl");
    fs::write(&path, PAGES).unwrap();
    AskOptions::new(vec![path], folder.join("cache"))
}

/// A running server. It ends when this is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) state: Arc<State>,
    pub(crate) stop: Stop,
    thread: Option<JoinHandle<Result<()>>>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let line = self.head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    }

    /// The JSON of the data of server-sent events, and whether the last one is `[DONE]`.
    pub(crate) fn events(&self) -> (Vec<Value>, bool) {
        let data: Vec<&str> = self.text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        let done = data.last() == Some(&"[DONE]");
        (
            data.iter()
                .filter(|data| **data != "[DONE]")
                .map(|data| serde_json::from_str(data).unwrap())
                .collect(),
            done,
        )
    }
}

impl Served {
    /// Starts a server with options that may lie in a folder of its own.
    pub(crate) fn start(options: impl FnOnce(&Path) -> ServerOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stop = Stop::new();
        let server = Server::open(options(folder.path()), &stop, &mut |_| {}).unwrap();
        let (address, state) = (server.address(), Arc::clone(server.state()));
        let thread = Some(thread::spawn(move || server.run()));
        Self { address, folder, state, stop, thread }
    }

    /// Sends a request and reads its response.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut stream = self.begin(method, path, headers, body);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let text = if is_chunked { unchunked(body) } else { body.to_owned() };
        Reply { status, head: head.to_owned(), text }
    }

    /// Sends a request.
    pub(crate) fn begin(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "host") {
            head.push_str(&format!("host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[("content-type", "application/json")], &body.to_string())
    }

    /// The value of a metric.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text;
        let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.and_then(|line| line.rsplit(' ').next()).map_or(0.0, |value| value.parse().unwrap())
    }

    /// Ends the server, and returns how it ended.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.stop.now();
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{error}");
        }
    }
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        text.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    text
}
