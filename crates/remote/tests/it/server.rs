//! A small HTTP endpoint over loopback whose replies a test writes, the wrong ones too.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;

/// A request that came.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "each crate's tests look at other parts")]
pub(crate) struct Asked {
    /// The path, such as `/v1/embeddings`.
    pub(crate) path: String,
    /// The header `Authorization`, or nothing.
    pub(crate) authorization: String,
    /// The body.
    pub(crate) body: Value,
}

/// A reply.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "each crate's tests use other replies")]
pub(crate) enum Reply {
    /// Status 200 and JSON.
    Json(Value),
    /// A status, a line of headers (may be empty) and a body.
    Status(u16, &'static str, String),
    /// Status 200 and these events of a stream, which ends then.
    Events(Vec<String>),
    /// Events, a part of a second apart.
    SlowEvents(Duration, Vec<String>),
    /// The header of a body of 100 bytes, and less than that.
    Cut,
    /// Nothing for some time, then the connection closes.
    Silence(Duration),
}

/// The endpoint. It runs until the test's process ends.
pub(crate) struct Server {
    /// The address with `/v1`.
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Starts an endpoint. `reply` gets each request with its number, counted from 0.
    pub(crate) fn start(reply: impl Fn(usize, &Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (log, reply) = (Arc::clone(&asked), Arc::new(reply));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, reply) = (Arc::clone(&log), Arc::clone(&reply));
                std::thread::spawn(move || {
                    let Some(request) = read(&stream) else { return };
                    let number = {
                        let mut log = log.lock().unwrap();
                        log.push(request.clone());
                        log.len() - 1
                    };
                    // The client may have closed the connection.
                    let _ = answer(stream, reply(number, &request));
                });
            }
        });
        Self { url, asked }
    }

    /// The requests until now.
    #[allow(dead_code, reason = "each crate's tests look at other parts")]
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split_whitespace().nth(1)?.to_owned();
    let (mut length, mut authorization) = (0, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim_end();
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':')?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "authorization" => authorization = value.trim().to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Asked { path, authorization, body: serde_json::from_slice(&body).unwrap_or_default() })
}

fn answer(mut stream: TcpStream, reply: Reply) -> std::io::Result<()> {
    let head = |status: u16, kind: &str, more: &str| {
        let more = if more.is_empty() { String::new() } else { format!("{more}\r\n") };
        format!("HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nConnection: close\r\n{more}")
    };
    match reply {
        Reply::Json(value) => {
            let body = value.to_string();
            let head = head(200, "application/json", "");
            write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len())
        }
        Reply::Status(status, more, body) => {
            let head = head(status, "application/json", more);
            write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len())
        }
        Reply::Events(events) => write_events(stream, Duration::ZERO, &events, &head),
        Reply::SlowEvents(pause, events) => write_events(stream, pause, &events, &head),
        Reply::Cut => {
            write!(stream, "{}Content-Length: 100\r\n\r\n{{\"a\":", head(200, "application/json", ""))
        }
        Reply::Silence(time) => {
            std::thread::sleep(time);
            Ok(())
        }
    }
}

fn write_events(
    mut stream: TcpStream,
    pause: Duration,
    events: &[String],
    head: &dyn Fn(u16, &str, &str) -> String,
) -> std::io::Result<()> {
    write!(stream, "{}\r\n", head(200, "text/event-stream", ""))?;
    for event in events {
        write!(stream, "data: {event}\n\n")?;
        stream.flush()?;
        std::thread::sleep(pause);
    }
    Ok(())
}
