//! `sporran serve` as a process: its address, its signals, its exit codes.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::at_home;

/// The program, whose errors the test reads.
fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = at_home(folder, arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// A server that listens.
struct Served {
    process: Child,
    address: String,
    errors: BufReader<ChildStderr>,
}

impl Served {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut process = command(folder, arguments).spawn().unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        let mut seen = String::new();
        let address = loop {
            let mut line = String::new();
            assert_ne!(errors.read_line(&mut line).unwrap(), 0, "{seen}");
            if let Some(address) = line.trim().strip_prefix("listening on http://") {
                break address.to_owned();
            }
            seen.push_str(&line);
        };
        Self { process, address, errors }
    }

    /// The response to a request without a body.
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// The exit code, and the rest of standard error.
    fn end(mut self, signal: &str) -> (Option<i32>, String) {
        self.signal(signal);
        let code = self.process.wait().unwrap().code();
        let mut text = String::new();
        self.errors.read_to_string(&mut text).unwrap();
        (code, text)
    }
}

#[test]
fn a_server_logs_its_requests_and_ends_with_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tea.md"), "# Tea\n\nTea is hot.\n").unwrap();
    for (signal, format) in [("TERM", None), ("INT", Some("--json"))] {
        let arguments = ["serve", "tea.md", "--port", "0"].into_iter().chain(format).collect::<Vec<_>>();
        let served = Served::start(folder.path(), &arguments);
        assert!(served.address.starts_with("127.0.0.1:"), "{}", served.address);
        let found = served.get("/v1/tea.md/search?query=tea");
        assert!(found.starts_with("HTTP/1.1 200 OK") && found.contains("Tea is hot."), "{found}");
        let (code, log) = served.end(signal);
        assert_eq!(code, Some(0), "{log}");
        let line =
            log.lines().find(|line| line.contains("/v1/tea.md/search")).unwrap_or_else(|| panic!("{log}"));
        match format {
            None => assert!(line.contains("status=200"), "{line}"),
            Some(_) => {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!((&line["status"], &line["method"]), (&200.into(), &"GET".into()));
                assert!(line["id"].is_string() && line["seconds"].is_number(), "{line}");
            }
        }
    }
}

#[test]
fn changed_documents_are_served_after_a_hang_up() {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    fs::create_dir(&notes).unwrap();
    fs::write(notes.join("tea.md"), "# Tea\n\nTea is hot.\n").unwrap();
    let served = Served::start(folder.path(), &["serve", "notes", "--port", "0"]);
    assert!(!served.get("/v1/notes/search?query=coffee").contains("Coffee is black."));
    fs::write(notes.join("coffee.md"), "# Coffee\n\nCoffee is black.\n").unwrap();
    served.signal("HUP");
    let end = Instant::now() + Duration::from_secs(60);
    while !served.get("/v1/notes/search?query=coffee").contains("Coffee is black.") {
        assert!(Instant::now() < end, "the documents stayed as they were");
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(served.end("TERM").0, Some(0));
}

#[test]
fn wrong_calls_end_with_code_2_and_name_the_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("tea.md", "# Tea\n\nTea is hot.\n");
    write("key", "short\n");
    fs::write(folder.path().join("bytes"), [0xff; 20]).unwrap();
    write("tagging.toml", "workflow = \"tagging\"\nname = \"t\"\n");
    for (arguments, expected) in [
        (&["serve"][..], "nothing to serve"),
        (&["serve", "none"], "no file or folder none"),
        (&["serve", "tea.md", "tea.md"], "two mounts have the name `tea.md`"),
        (&["serve", "tea.md", "--api-key-file", "key"], "at least 16 characters"),
        (&["serve", "tea.md", "--api-key-file", "none"], "no file none"),
        (
            &["serve", "tea.md", "--api-key-file", "bytes"],
            "bytes: expected an API key of visible ASCII characters",
        ),
        (&["serve", "tea.md", "--threads", "0"], "expected a number from 1 to 1024, found `0`"),
        (&["serve", "tea.md", "--threads", "4000"], "expected a number from 1 to 1024, found `4000`"),
        (&["serve", "tea.md", "--api-key-file", "."], "expected a file, found the folder ."),
        (
            &["serve", "tagging.toml"],
            "expected a config of a served workflow, found `workflow = \"tagging\"`",
        ),
        (&["serve", "tea.md", "--host", "example.org"], "expected an IP address"),
        (&["serve", "tea.md", "--max-connections", "9999999"], "--max-connections"),
    ] {
        let output = command(folder.path(), arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
    }
}
