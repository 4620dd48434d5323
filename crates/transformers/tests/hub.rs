//! Models of the hub: from a cache that is there, and from a server that stands in for the hub.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

use sporran_transformers::{Checkpoint, Error, Hub, ModelId, import};
use tempfile::TempDir;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn id(text: &str) -> ModelId {
    text.parse().unwrap()
}

/// A cache with one commit of one model, as `huggingface_hub` lays it out.
fn cache() -> TempDir {
    let cache = TempDir::new().unwrap();
    let model = cache.path().join("models--org--tiny");
    let snapshot = model.join("snapshots").join(COMMIT);
    for folder in [&model.join("refs"), &model.join("blobs"), &snapshot] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(model.join("refs/main"), COMMIT).unwrap();
    for (from, file) in [
        (data("weights/config.json"), "config.json"),
        (data("weights/archive.bin"), "pytorch_model.bin"),
        (data("t5-relu/tokenizer.json"), "tokenizer.json"),
    ] {
        let blob = model.join("blobs").join(file.replace('.', "-"));
        fs::copy(from, &blob).unwrap();
        std::os::unix::fs::symlink(&blob, snapshot.join(file)).unwrap();
    }
    cache
}

/// Answers as the hub does, for as long as the test runs, and notes what was asked for.
struct Server {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(files: &[(&str, Vec<u8>)], cut: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let files: BTreeMap<String, Vec<u8>> =
            files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                answer(stream, &files, &log, cut);
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(
    mut stream: TcpStream,
    files: &BTreeMap<String, Vec<u8>>,
    log: &Mutex<Vec<String>>,
    cut: Option<&str>,
) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let range =
        headers.iter().find_map(|line| line.to_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    log.lock().unwrap().push(path.clone());
    let file = path.strip_prefix("/org/tiny/resolve/main/").and_then(|name| files.get_key_value(name));
    let (status, extra, body) = if path == "/api/models/org/tiny/revision/main" {
        let siblings: Vec<_> = files.keys().map(|name| serde_json::json!({ "rfilename": name })).collect();
        let info = serde_json::json!({ "sha": COMMIT, "siblings": siblings });
        ("200 OK", String::new(), info.to_string().into_bytes())
    } else if let Some((name, bytes)) = file {
        let (start, end) = match range.as_deref().and_then(|range| range.split_once('-')) {
            Some((start, "")) => (start.parse().unwrap(), bytes.len()),
            Some((start, end)) => (start.parse().unwrap(), end.parse::<usize>().unwrap() + 1),
            None => (0, bytes.len()),
        };
        let mut body = bytes[start..end].to_vec();
        if cut == Some(name.as_str()) && body.len() > 1 {
            body.truncate(body.len() / 2);
        }
        let extra = format!(
            "content-range: bytes {start}-{}/{}\r\netag: \"{}\"\r\nx-repo-commit: {COMMIT}\r\n",
            end - 1,
            bytes.len(),
            name.replace(['.', '/'], "-"),
        );
        ("206 Partial Content", extra, body)
    } else {
        ("404 Not Found", String::new(), Vec::new())
    };
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{extra}\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let read = |name: &str| fs::read(data(name)).unwrap();
    vec![
        ("config.json", read("weights/config.json")),
        ("tokenizer.json", read("t5-relu/tokenizer.json")),
        ("README.md", b"---\nlicense: mit\n---\n".to_vec()),
        ("pytorch_model.bin.index.json", read("weights/pytorch_model.bin.index.json")),
        ("pytorch_model-00001-of-00002.bin", read("weights/pytorch_model-00001-of-00002.bin")),
        ("pytorch_model-00002-of-00002.bin", read("weights/pytorch_model-00002-of-00002.bin")),
        ("training_args.bin", b"not for us".to_vec()),
    ]
}

#[test]
fn a_cached_model_needs_no_network() {
    let cache = cache();
    // Nothing listens there.
    let hub = Hub::new(cache.path()).with_endpoint("http://127.0.0.1:9");
    let expected = cache.path().join("models--org--tiny/snapshots").join(COMMIT);
    let offline = hub.clone().offline(true);
    for (hub, text) in [(&offline, "org/tiny".to_owned()), (&hub, format!("org/tiny@{COMMIT}"))] {
        let folder = hub.folder(&id(&text), &mut |_| {}).unwrap();
        assert_eq!(folder, expected);
        Checkpoint::open(&folder).unwrap();
    }
    // A branch is asked for, and what the cache has of it serves where the hub is away.
    assert_eq!(hub.folder(&id("org/tiny"), &mut |_| {}).unwrap(), expected);
    let error = offline.folder(&id("org/other"), &mut |_| {}).unwrap_err();
    assert!(matches!(&error, Error::NotCached { .. }), "{error}");
    assert!(error.to_string().starts_with("org/other@main: expected it in the cache"), "{error}");
    assert!(matches!(hub.folder(&id("org/other"), &mut |_| {}), Err(Error::Hub { .. })));
}

#[test]
fn a_model_that_is_not_whole_is_not_taken_from_the_cache() {
    let cache = cache();
    let snapshot = cache.path().join("models--org--tiny/snapshots").join(COMMIT);
    fs::remove_file(snapshot.join("pytorch_model.bin")).unwrap();
    let hub = Hub::new(cache.path()).offline(true);
    assert!(matches!(hub.folder(&id("org/tiny"), &mut |_| {}), Err(Error::NotCached { .. })));
}

#[test]
fn a_model_is_fetched_once_with_its_shards_and_nothing_else() {
    let (server, cache) = (Server::start(&files(), None), TempDir::new().unwrap());
    let hub = Hub::new(cache.path()).with_endpoint(&server.address);
    let mut seen = BTreeMap::new();
    let folder = hub
        .folder(&id("org/tiny"), &mut |progress| {
            seen.insert(progress.file.to_owned(), (progress.done, progress.total));
        })
        .unwrap();
    assert_eq!(folder, cache.path().join("models--org--tiny/snapshots").join(COMMIT));
    assert!(Checkpoint::open(&folder).unwrap().surplus().is_empty());
    assert!(!folder.join("training_args.bin").exists());
    assert_eq!(seen.len(), 6);
    assert!(seen.values().all(|(done, total)| done == total), "{seen:?}");
    // The branch is looked up again, and no file is.
    let before = server.asked().len();
    hub.folder(&id("org/tiny"), &mut |_| panic!("a download")).unwrap();
    assert_eq!(server.asked()[before..], ["/api/models/org/tiny/revision/main"]);
    // And the cache serves without the hub.
    assert_eq!(hub.offline(true).folder(&id("org/tiny"), &mut |_| {}).unwrap(), folder);
}

#[test]
fn a_file_that_comes_short_is_an_error_and_is_not_kept() {
    let cache = TempDir::new().unwrap();
    let cut = Server::start(&files(), Some("config.json"));
    let hub = Hub::new(cache.path()).with_endpoint(&cut.address);
    let error = hub.folder(&id("org/tiny"), &mut |_| {}).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.starts_with("config.json: expected "), "{cause}");
    let whole = Server::start(&files(), None);
    let folder = hub.with_endpoint(&whole.address).folder(&id("org/tiny"), &mut |_| {}).unwrap();
    Checkpoint::open(&folder).unwrap();
}

#[test]
fn a_model_that_the_hub_lacks_is_an_error() {
    let (server, cache) = (Server::start(&files(), None), TempDir::new().unwrap());
    let hub = Hub::new(cache.path()).with_endpoint(&server.address);
    let error = hub.folder(&id("org/none@v2"), &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "org/none@v2: it could not be fetched");
}

#[test]
fn an_imported_model_is_safetensors_with_the_same_tensors() {
    let (cache, to) = (cache(), TempDir::new().unwrap());
    let from = Checkpoint::open(&cache.path().join("models--org--tiny/snapshots").join(COMMIT)).unwrap();
    let into = to.path().join("models/tiny");
    import(&from, &into).unwrap();
    let again = Checkpoint::open(&into).unwrap();
    assert!(into.join("model.safetensors").exists() && into.join("tokenizer.json").exists());
    assert_eq!((again.config(), again.stored_types()), (from.config(), from.stored_types()));
    for parameter in from.parameters() {
        let values = |checkpoint: &Checkpoint| -> Vec<f32> {
            let (f32, cpu) = (candle_core::DType::F32, candle_core::Device::Cpu);
            checkpoint.tensor(&parameter.name, f32, &cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap()
        };
        assert_eq!(values(&again), values(&from), "{}", parameter.name);
    }
    assert!(matches!(import(&from, &into), Err(Error::Exists { .. })));
    // Nothing is left of the making.
    assert_eq!(fs::read_dir(to.path().join("models")).unwrap().count(), 1);
}
