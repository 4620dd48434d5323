//! Load over loopback: rates and latencies of a server against those of the library, and an endurance test.
//!
//!     cargo bench -p sporran-server --bench load -- embed MODEL TEXTS [SECONDS] [URL]
//!     cargo bench -p sporran-server --bench load -- search SOURCE QUERIES [SECONDS]
//!     cargo bench -p sporran-server --bench load -- mixed MODEL SOURCE QUERIES [SECONDS]
//!
//! TEXTS and QUERIES are files with a text a line. URL is another server of the API of text-embeddings-inference, which is
//! measured too. The load comes from threads of this process, so it shares the cores with the server. `scripts/load-test` runs all.

#![allow(clippy::result_large_err, reason = "an error ends the bench")]
#![allow(clippy::print_stdout)]

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use sporran_kilt::Query;
use sporran_pipeline::workflows::answer::{AskOptions, System};
use sporran_retriever::dense::{BiEncoder, BiEncoderOptions, Encoder};
use sporran_server::{ServedModels, Server, ServerOptions, Stop};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The numbers of clients.
const CLIENTS: [usize; 3] = [1, 8, 64];

/// A client with a connection that it keeps.
struct Client {
    address: String,
    stream: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: &str) -> Result<Self, Failed> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { address: address.to_owned(), stream: BufReader::new(stream) })
    }

    fn send(&mut self, method: &str, path: &str, body: &str) -> Result<(), Failed> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        self.stream.get_mut().write_all((head + body).as_bytes())?;
        Ok(())
    }

    /// The status and the length of the response.
    fn receive(&mut self) -> Result<(u16, usize), Failed> {
        let (mut status, mut length, mut line) = (0, 0, String::new());
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err("the connection was closed".into());
            }
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            if status == 0 {
                status = text.split(' ').nth(1).unwrap_or_default().parse()?;
            } else if let Some((name, value)) = text.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status, length))
    }
}

/// A request: method, path, body.
type Call = (&'static str, String, String);

/// Calls from `clients` connections for some time. Returns the latencies, and the number of answers that are not 200.
fn load(
    address: &str,
    clients: usize,
    time: Duration,
    call: &(dyn Fn(usize) -> Call + Sync),
) -> Result<(Vec<f64>, usize), Failed> {
    let (next, is_over, failures) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let client = || -> Result<Vec<f64>, Failed> {
            let mut client = Client::connect(address)?;
            let mut seconds = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let (method, path, body) = call(next.fetch_add(1, Ordering::Relaxed));
                let begin = Instant::now();
                client.send(method, &path, &body)?;
                if client.receive()?.0 != 200 {
                    failures.fetch_add(1, Ordering::Relaxed);
                }
                seconds.push(begin.elapsed().as_secs_f64());
            }
            Ok(seconds)
        };
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a client panicked")??);
        }
        all.sort_by(f64::total_cmp);
        Ok((all, failures.load(Ordering::Relaxed)))
    })
}

/// Measures each number of clients, and prints a row for each.
fn measure(
    name: &str,
    address: &str,
    time: Duration,
    inside: f64,
    call: &(dyn Fn(usize) -> Call + Sync),
) -> Result<(), Failed> {
    load(address, 4, Duration::from_secs(1), call)?;
    for clients in CLIENTS {
        let begin = Instant::now();
        let (seconds, failures) = load(address, clients, time, call)?;
        let rate = seconds.len() as f64 / begin.elapsed().as_secs_f64();
        let at = |share: f64| 1000.0 * seconds[((seconds.len() - 1) as f64 * share) as usize];
        println!(
            "| {name} | {clients} | {rate:.1} | {:.2} | {:.1} | {:.1} | {failures} |",
            rate / inside,
            at(0.5),
            at(0.99)
        );
    }
    Ok(())
}

fn head() {
    println!(
        "| server | clients | requests/s | of the library | p50 ms | p99 ms | not 200 |\n|---|---|---|---|---|---|---|"
    );
}

fn lines(path: &str) -> Result<Vec<String>, Failed> {
    let lines: Vec<String> =
        fs::read_to_string(path)?.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    if lines.is_empty() { Err(format!("{path}: expected lines, found none").into()) } else { Ok(lines) }
}

/// Runs `work` against a server in this process.
fn served(options: ServerOptions, work: impl FnOnce(&str) -> Result<(), Failed>) -> Result<(), Failed> {
    let stop = Stop::new();
    let server = Server::open(options, &stop, &mut |_| {})?;
    let address = server.address().to_string();
    let running = thread::spawn(move || server.run());
    let done = work(&address);
    stop.now();
    running.join().map_err(|_| "the server panicked")??;
    done
}

fn embed(model: &str, texts: &str, time: Duration, url: Option<&str>) -> Result<(), Failed> {
    let texts = lines(texts)?;
    let encoder = BiEncoder::load(&BiEncoderOptions::new(model.into()))?;
    let all: Vec<&str> = texts.iter().map(String::as_str).collect();
    encoder.encode(&all[..all.len().min(64)])?;
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < time {
        for part in all.chunks(1024) {
            encoder.encode(part)?;
            count += part.len();
            if begin.elapsed() >= time {
                break;
            }
        }
    }
    let inside = count as f64 / begin.elapsed().as_secs_f64();
    println!("library, batches of 1024 texts: {inside:.1} texts/s\n");
    head();
    let call =
        |at: usize| ("POST", "/embed".to_owned(), json!({ "inputs": texts[at % texts.len()] }).to_string());
    let models = ServedModels { embedder: Some(model.into()), ..ServedModels::default() };
    served(ServerOptions { models, ..ServerOptions::new() }, |address| {
        measure("sporran", address, time, inside, &call)
    })?;
    if let Some(url) = url {
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        measure("other", address, time, inside, &call)?;
    }
    Ok(())
}

fn source(source: &str) -> Result<AskOptions, Failed> {
    let cache = env::temp_dir().join("sporran-load");
    fs::create_dir_all(&cache)?;
    Ok(AskOptions::new(vec![PathBuf::from(source)], cache))
}

/// The characters of a query that an address may have as they are; the others are escaped.
fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn search(place: &str, queries: &str, time: Duration) -> Result<(), Failed> {
    let queries = lines(queries)?;
    let options = source(place)?;
    let system = System::open(options.resolve()?, &mut |_| {})?;
    let all: Vec<Query> = queries.iter().map(|text| Query::of_text("", text.as_str())).collect();
    system.search(&all[..all.len().min(64)], 10)?;
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < time {
        for part in all.chunks(64) {
            // As the server does: the hits with the texts of their passages.
            for hits in system.search(part, 10)? {
                for hit in hits {
                    std::hint::black_box(system.store().map(|store| store.passage(hit.passage)));
                }
            }
            count += part.len();
            if begin.elapsed() >= time {
                break;
            }
        }
    }
    let inside = count as f64 / begin.elapsed().as_secs_f64();
    println!("library, batches of 64 queries with the texts of 10 hits: {inside:.1} queries/s\n");
    drop(system);
    head();
    let name =
        PathBuf::from(place).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let call = |at: usize| {
        ("GET", format!("/v1/{name}/search?query={}", escaped(&queries[at % queries.len()])), String::new())
    };
    served(ServerOptions { mounts: vec![options], ..ServerOptions::new() }, |address| {
        measure("sporran", address, time, inside, &call)
    })
}

/// The anonymous memory of this process in MiB; 0 where the system does not tell. Pages of mapped files are not counted: the system
/// keeps them as long as it has room.
fn memory() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn mixed(model: &str, place: &str, queries: &str, time: Duration) -> Result<(), Failed> {
    let queries = lines(queries)?;
    let name =
        PathBuf::from(place).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let models = ServedModels { embedder: Some(model.into()), ..ServedModels::default() };
    let options = ServerOptions { models, mounts: vec![source(place)?], ..ServerOptions::new() };
    let statuses: Vec<AtomicUsize> = (0..600).map(|_| AtomicUsize::new(0)).collect();
    let (lost, gone) = (AtomicUsize::new(0), AtomicUsize::new(0));
    served(options, |address| {
        let one = |at: usize| -> Result<(), Failed> {
            let query = &queries[at % queries.len()];
            let mut client = Client::connect(address)?;
            match at % 7 {
                0 => client.send("POST", "/embed", &json!({ "inputs": query }).to_string())?,
                1 => client.send("GET", &format!("/v1/{name}/search?query={}", escaped(query)), "")?,
                2 => client.send(
                    "POST",
                    "/v1/answer",
                    &json!({ "question": query, "trace": true }).to_string(),
                )?,
                // Garbage, and more than the server reads.
                3 => client.send("POST", "/embed", "{\"inputs\": [1, {")?,
                4 => client.send("POST", "/embed", &json!({ "inputs": "a".repeat(3 << 20) }).to_string())?,
                // A client that goes before its answer.
                5 => {
                    client.send("POST", "/embed", &json!({ "inputs": vec![query; 64] }).to_string())?;
                    gone.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                // Half a request.
                _ => {
                    client
                        .stream
                        .get_mut()
                        .write_all(b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-le")?;
                    gone.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
            }
            let (status, _) = client.receive()?;
            statuses[usize::from(status).min(599)].fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let (next, begin) = (AtomicUsize::new(0), Instant::now());
        let run = |until: Duration| {
            thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        while begin.elapsed() < until {
                            let at = next.fetch_add(1, Ordering::Relaxed);
                            // A server may end the connection of a body that it does not read.
                            if one(at).is_err() && at % 7 != 4 {
                                lost.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                }
            });
        };
        println!("| seconds | requests | anonymous memory, MiB |\n|---:|---:|---:|");
        for part in 1..=10 {
            let end = time * part / 10;
            run(end);
            println!("| {} | {} | {:.0} |", end.as_secs(), next.load(Ordering::Relaxed), memory());
        }
        println!(
            "requests: {}, of which clients left early: {}",
            next.load(Ordering::Relaxed),
            gone.load(Ordering::Relaxed)
        );
        for (status, count) in statuses.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                println!("status {status}: {count}");
            }
        }
        println!("without an answer: {}", lost.load(Ordering::Relaxed));
        Ok(())
    })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let seconds = |text: &str| text.parse().map(Duration::from_secs).map_err(Failed::from);
    let default = Duration::from_secs(10);
    let done = match arguments[..] {
        ["embed", model, texts] => embed(model, texts, default, None),
        ["embed", model, texts, time] => seconds(time).and_then(|time| embed(model, texts, time, None)),
        ["embed", model, texts, time, url] => seconds(time).and_then(|time| embed(model, texts, time, Some(url))),
        ["search", source, queries] => search(source, queries, default),
        ["search", source, queries, time] => seconds(time).and_then(|time| search(source, queries, time)),
        ["mixed", model, source, queries, time] => seconds(time).and_then(|time| mixed(model, source, queries, time)),
        _ => Err("expected embed MODEL TEXTS [SECONDS] [URL], search SOURCE QUERIES [SECONDS], or mixed MODEL SOURCE QUERIES SECONDS".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
