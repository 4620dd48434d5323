//! Models of the hub: from a filled cache, and from a mock server of the hub.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

use crate::warnings::Warnings;
use candle_core::{DType, Device};
use sha1::{Digest, Sha1};
use sha2::Sha256;
use sporran_checkpoint::{Error, Hub, ModelId, tensors};
use tempfile::TempDir;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// A commit that the hub's branch no longer leads to.
const OLDER: &str = "89abcdef0123456789abcdef0123456789abcdef";

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data").join(name)
}

fn id(text: &str) -> ModelId {
    text.parse().unwrap()
}

/// Requires the weights of a folder to be there.
fn assert_whole(folder: &Path) {
    assert!(!tensors(folder, DType::F32, &Device::Cpu).unwrap().0.is_empty());
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

/// The same with an older commit than the hub has, and its snapshot.
fn older() -> (TempDir, PathBuf) {
    let cache = cache();
    let model = cache.path().join("models--org--tiny");
    let snapshot = model.join("snapshots").join(OLDER);
    fs::rename(model.join("snapshots").join(COMMIT), &snapshot).unwrap();
    fs::write(model.join("refs/main"), OLDER).unwrap();
    (cache, snapshot)
}

/// A request: its path, and its headers in lower case.
#[derive(Clone, Debug)]
struct Request {
    path: String,
    headers: Vec<String>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The requested byte range of a file, with the headers of a partial response.
    fn part(&self, bytes: &[u8], more: &str) -> Reply {
        let range = self.header("range").and_then(|range| range.strip_prefix("bytes="));
        let (start, end) = match range.and_then(|range| range.split_once('-')) {
            Some((start, "")) => (start.parse().unwrap(), bytes.len()),
            Some((start, end)) => (start.parse().unwrap(), end.parse::<usize>().unwrap() + 1),
            None => (0, bytes.len()),
        };
        let head = format!(
            "content-range: bytes {start}-{}/{}\r\nx-repo-commit: {COMMIT}\r\n{more}",
            end - 1,
            bytes.len()
        );
        ("206 Partial Content", head, bytes[start..end].to_vec())
    }
}

/// Status, headers and body.
type Reply = (&'static str, String, Vec<u8>);

/// Answers for as long as the test runs, and records the requests.
struct Server {
    address: String,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    fn new(answer: impl Fn(&Request) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let notes = log.clone();
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let Some(first_line) = lines.next() else { continue };
                let path = first_line.split(' ').nth(1).unwrap_or_default().to_owned();
                let headers =
                    lines.take_while(|line| !line.is_empty()).map(|line| line.to_lowercase()).collect();
                let request = Request { path, headers };
                let (status, head, body) = answer(&request);
                notes.lock().unwrap().push(request);
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{head}\r\n",
                    body.len()
                );
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
            }
        });
        Self { address, log }
    }

    /// A hub with one model, one file of which may come short; its etags are no hashes.
    fn start(files: &[(&str, Vec<u8>)], cut: Option<&'static str>) -> Self {
        let files = by_name(files);
        Self::new(move |request| {
            let Some((name, bytes)) = file_of(request, &files) else { return listing(request, &files) };
            let etag = name.replace(['.', '/'], "-");
            let (status, head, mut body) = request.part(bytes, &format!("etag: \"{etag}\"\r\n"));
            if cut == Some(name) && body.len() > 1 {
                body.truncate(body.len() / 2);
            }
            (status, head, body)
        })
    }

    fn log(&self) -> Vec<Request> {
        self.log.lock().unwrap().clone()
    }

    fn paths(&self) -> Vec<String> {
        self.log().into_iter().map(|request| request.path).collect()
    }
}

type Named = BTreeMap<String, Vec<u8>>;

fn by_name(files: &[(&str, Vec<u8>)]) -> Named {
    files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect()
}

fn file_of<'f>(request: &Request, files: &'f Named) -> Option<(&'f str, &'f [u8])> {
    let name = request.path.strip_prefix("/org/tiny/resolve/")?.strip_prefix(COMMIT)?.strip_prefix('/')?;
    files.get_key_value(name).map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
}

/// The hub's response for the model, and for everything else.
fn listing(request: &Request, files: &Named) -> Reply {
    if request.path != "/api/models/org/tiny/revision/main" {
        return ("404 Not Found", String::new(), Vec::new());
    }
    let siblings: Vec<_> = files.keys().map(|name| serde_json::json!({ "rfilename": name })).collect();
    let info = serde_json::json!({ "sha": COMMIT, "siblings": siblings });
    ("200 OK", String::new(), info.to_string().into_bytes())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of a file as git names it.
fn git_hash(bytes: &[u8]) -> String {
    hex(&Sha1::new().chain_update(format!("blob {}\0", bytes.len())).chain_update(bytes).finalize())
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Two files of a model: the config, which git keeps, and weights, which are stored as a large file.
fn small() -> Named {
    by_name(&[("config.json", b"{}".to_vec()), ("model.safetensors", (0..200).collect())])
}

/// The content that is served for a file, by its name and its right content.
type Serve = fn(&str, &[u8]) -> Vec<u8>;

/// A hub that redirects to another host for weights, whose contents may be others than their hashes say.
fn hub_with_storage(serve: Serve) -> (Server, Server) {
    let storage = Server::new(move |request| {
        let files = small();
        match files.get(request.path.trim_start_matches("/stored/")) {
            // Its etag is not a hash of the content.
            Some(bytes) => request.part(&serve("model.safetensors", bytes), "etag: \"0\"\r\n"),
            None => ("404 Not Found", String::new(), Vec::new()),
        }
    });
    let place = storage.address.clone();
    let hub = Server::new(move |request| {
        let files = small();
        match file_of(request, &files) {
            None => listing(request, &files),
            Some(("model.safetensors", bytes)) => {
                let head = format!(
                    "location: {place}/stored/model.safetensors\r\nx-repo-commit: {COMMIT}\r\n\
                     x-linked-etag: \"{}\"\r\nx-linked-size: {}\r\n",
                    sha256(bytes),
                    bytes.len()
                );
                ("302 Found", head, Vec::new())
            }
            Some((name, bytes)) => {
                request.part(&serve(name, bytes), &format!("etag: \"{}\"\r\n", git_hash(bytes)))
            }
        }
    });
    (hub, storage)
}

fn as_it_is(_: &str, bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

fn damaged_weights(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if name == "model.safetensors" {
        bytes[199] = 0;
    }
    bytes
}

fn short_weights(name: &str, bytes: &[u8]) -> Vec<u8> {
    if name == "model.safetensors" { bytes[..150].to_vec() } else { bytes.to_vec() }
}

fn other_config(name: &str, bytes: &[u8]) -> Vec<u8> {
    if name == "config.json" { b"[]".to_vec() } else { bytes.to_vec() }
}

/// The contents that a cache has.
fn blobs(cache: &TempDir) -> Vec<String> {
    let folder = cache.path().join("models--org--tiny/blobs");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| !name.ends_with(".lock")).collect()
}

#[test]
fn content_with_a_wrong_hash_is_an_error_and_is_removed() {
    let cache = TempDir::new().unwrap();
    let wrong = [("config.json", other_config as Serve), ("model.safetensors", damaged_weights)];
    for (file, serve) in wrong {
        let (server, _storage) = hub_with_storage(serve);
        let hub = Hub::new(cache.path()).with_endpoint(&server.address);
        let error = hub.folder(&id("org/tiny"), &mut |_| {}).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with(&format!("{file}: expected content with the hash")), "{cause}");
        let kept = usize::from(file != "config.json");
        assert_eq!(blobs(&cache).len(), kept, "{:?}", blobs(&cache));
        assert!(!cache.path().join("models--org--tiny/snapshots").join(COMMIT).join(file).exists());
        assert!(!cache.path().join("models--org--tiny/refs").exists());
    }
    let (server, _storage) = hub_with_storage(as_it_is);
    let folder = Hub::new(cache.path()).with_endpoint(&server.address).folder(&id("org/tiny"), &mut |_| {});
    assert_eq!(fs::read(folder.unwrap().join("model.safetensors")).unwrap(), small()["model.safetensors"]);
}

/// The branch leads to the older commit, whose files are all there.
fn assert_older_is_kept(cache: &TempDir, snapshot: &Path) {
    let hub = Hub::new(cache.path()).offline(true);
    assert_eq!(hub.folder(&id("org/tiny"), &mut |_| {}).unwrap(), snapshot);
    assert_whole(snapshot);
}

#[test]
fn wrong_content_of_another_commit_is_an_error_and_the_cached_commit_stays() {
    for (file, serve, expected) in [
        ("config.json", other_config as Serve, "expected content with the hash"),
        ("model.safetensors", damaged_weights, "expected content with the hash"),
        ("model.safetensors", short_weights, "expected 200 bytes, found 150"),
    ] {
        let (server, _storage) = hub_with_storage(serve);
        let (cache, snapshot) = older();
        let hub = Hub::new(cache.path()).with_endpoint(&server.address);
        let (found, said) = Warnings::of(|| hub.folder(&id("org/tiny"), &mut |_| {}));
        let error = found.unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with(&format!("{file}: {expected}")), "{cause}");
        assert!(said.is_empty(), "{said:?}");
        // Only the right config, which comes first, is there.
        let newer = cache.path().join("models--org--tiny/snapshots").join(COMMIT);
        assert_eq!(newer.exists(), file != "config.json");
        assert!(!newer.join(file).exists());
        let right = small()[file].clone();
        assert!(!blobs(&cache).iter().any(|name| *name == sha256(&right) || *name == git_hash(&right)));
        assert_older_is_kept(&cache, &snapshot);
    }
}

#[test]
fn a_refusal_is_an_error_though_the_branch_is_cached() {
    for status in ["401 Unauthorized", "403 Forbidden", "404 Not Found"] {
        let server = Server::new(move |_| (status, String::new(), Vec::new()));
        let (cache, snapshot) = older();
        let hub = Hub::new(cache.path()).with_endpoint(&server.address);
        let error = hub.folder(&id("org/tiny"), &mut |_| {}).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.ends_with(&format!("the status {status}")), "{cause}");
        assert_older_is_kept(&cache, &snapshot);
    }
}

#[test]
fn where_the_hub_cannot_be_reached_the_cached_commit_serves_with_a_warning() {
    let failed = || ("503 Service Unavailable", String::new(), Vec::new());
    let down = Server::new(move |_| failed());
    // It fails on the first request for a file.
    let fails_later = Server::new(move |request| {
        let listed = listing(request, &small());
        if listed.0 == "200 OK" { listed } else { failed() }
    });
    // Nothing listens at the last address.
    for endpoint in [down.address.as_str(), fails_later.address.as_str(), "http://127.0.0.1:9"] {
        let (cache, snapshot) = older();
        let hub = Hub::new(cache.path()).with_endpoint(endpoint);
        let (found, said) = Warnings::of(|| hub.folder(&id("org/tiny"), &mut |_| {}));
        assert_eq!(found.unwrap(), snapshot, "{endpoint}");
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].contains("the hub cannot be reached") && said[0].contains("org/tiny@main"),
            "{said:?}"
        );
        assert_older_is_kept(&cache, &snapshot);
    }
    assert_eq!(fails_later.log().len(), 2);
}

#[test]
fn the_token_goes_to_the_hub_and_to_no_host_that_it_redirects_to() {
    let (server, storage) = hub_with_storage(as_it_is);
    let cache = TempDir::new().unwrap();
    let hub = Hub::new(cache.path()).with_endpoint(&server.address).with_token(Some("secret".into()));
    hub.folder(&id("org/tiny"), &mut |_| {}).unwrap();
    assert!(server.log().iter().all(|request| request.header("authorization") == Some("bearer secret")));
    assert!(!storage.log().is_empty());
    for request in storage.log() {
        assert!(request.headers.iter().all(|line| !line.contains("secret")), "{request:?}");
    }
}

#[test]
fn a_download_resumes_and_a_damaged_part_is_fetched_again() {
    let weights = small()["model.safetensors"].clone();
    for damaged in [false, true] {
        let (server, storage) = hub_with_storage(as_it_is);
        let cache = TempDir::new().unwrap();
        let folder = cache.path().join("models--org--tiny/blobs");
        fs::create_dir_all(&folder).unwrap();
        let mut rest = weights[..120].to_vec();
        rest[7] ^= u8::from(damaged);
        fs::write(folder.join(format!("{}.part", sha256(&weights))), rest).unwrap();
        let hub = Hub::new(cache.path()).with_endpoint(&server.address);
        let first = hub.folder(&id("org/tiny"), &mut |_| {});
        assert_eq!(storage.log()[0].header("range"), Some("bytes=120-"));
        assert_eq!(first.is_err(), damaged);
        let folder = hub.folder(&id("org/tiny"), &mut |_| {}).unwrap();
        assert_eq!(fs::read(folder.join("model.safetensors")).unwrap(), weights);
        assert_eq!(storage.log().len(), 1 + usize::from(damaged));
    }
}

/// A cache whose files have the hashes that their names say, fetched from a hub.
fn fetched() -> (Server, Server, TempDir, PathBuf) {
    let (server, storage) = hub_with_storage(as_it_is);
    let cache = TempDir::new().unwrap();
    let hub = Hub::new(cache.path()).with_endpoint(&server.address);
    let folder = hub.pull(&id("org/tiny"), &mut |_| {}).unwrap();
    (server, storage, cache, folder)
}

/// Flips one bit of the blob to which a file of the cache links.
fn flip(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    bytes[1] ^= 4;
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_flipped_bit_in_the_cache_is_found_by_a_pull_and_the_file_is_fetched_again() {
    for (file, bytes) in small() {
        let expected = if file == "config.json" { git_hash(&bytes) } else { sha256(&bytes) };
        let (server, storage, cache, folder) = fetched();
        let place = folder.join(&file);
        flip(&place);
        let hub = Hub::new(cache.path()).with_endpoint(&server.address);
        let damaged = fs::read(&place).unwrap();
        let found = if file == "config.json" { git_hash(&damaged) } else { sha256(&damaged) };
        // Without the network, of a branch and of a commit; and where the hub is away.
        let away = hub.clone().with_endpoint("http://127.0.0.1:9");
        for (hub, text) in [
            (hub.clone().offline(true), "org/tiny".to_owned()),
            (hub.clone().offline(true), format!("org/tiny@{COMMIT}")),
            (away, "org/tiny".to_owned()),
        ] {
            let error = hub.pull(&id(&text), &mut |_| {}).unwrap_err();
            assert!(
                matches!(&error, Error::Damaged { path, expected: e, found: f } if (path, e, f) == (&place, &expected, &found)),
                "{error}"
            );
        }
        let before = server.log().len() + storage.log().len();
        let again = hub.pull(&id("org/tiny"), &mut |_| {}).unwrap();
        assert_eq!((again, fs::read(&place).unwrap()), (folder.clone(), bytes.clone()));
        assert!(server.log().len() + storage.log().len() > before + 1);
        // A right cache is not fetched, and needs no hub.
        hub.pull(&id("org/tiny"), &mut |_| panic!("a download")).unwrap();
        hub.offline(true).pull(&id("org/tiny"), &mut |_| {}).unwrap();
    }
}

#[test]
fn a_damaged_content_that_another_commit_left_is_not_linked() {
    let (server, storage, cache, folder) = fetched();
    flip(&folder.join("model.safetensors"));
    fs::remove_dir_all(&folder).unwrap();
    let hub = Hub::new(cache.path()).with_endpoint(&server.address);
    hub.pull(&id("org/tiny"), &mut |_| {}).unwrap();
    assert_eq!(fs::read(folder.join("model.safetensors")).unwrap(), small()["model.safetensors"]);
    assert_eq!(storage.log().len(), 2);
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
        assert_whole(&folder);
    }
    // A branch is requested. If the hub is unreachable, the cached files serve.
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
    assert_whole(&folder);
    assert!(!folder.join("training_args.bin").exists());
    assert_eq!(seen.len(), 6);
    assert!(seen.values().all(|(done, total)| done == total), "{seen:?}");
    // The branch is looked up once; the files are requested by its commit.
    let paths = server.paths();
    assert_eq!(paths[0], "/api/models/org/tiny/revision/main");
    let prefix = format!("/org/tiny/resolve/{COMMIT}/");
    assert!(paths[1..].iter().all(|path| path.starts_with(&prefix)), "{paths:?}");
    // The branch is looked up again, and no file is.
    let before = server.paths().len();
    hub.folder(&id("org/tiny"), &mut |_| panic!("a download")).unwrap();
    assert_eq!(server.paths()[before..], ["/api/models/org/tiny/revision/main"]);
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
    assert_whole(&folder);
}

#[test]
fn a_model_that_the_hub_lacks_is_an_error() {
    let (server, cache) = (Server::start(&files(), None), TempDir::new().unwrap());
    let hub = Hub::new(cache.path()).with_endpoint(&server.address);
    let error = hub.folder(&id("org/none@v2"), &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "org/none@v2: it could not be fetched");
}
