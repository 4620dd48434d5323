//! A hub over HTTP: its answers, its redirects, and files that are fetched in parts and checked against their hashes.
//!
//! Redirects are followed here, not by the client, so that the token goes to the hub's own address alone: files of large
//! models are on other hosts, whose addresses carry a signature.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
    time::Duration,
};

use serde::de::DeserializeOwned;
use sha1::{Digest, Sha1};
use sha2::Sha256;
use ureq::{Agent, Body, http::Response};

/// The cause of [`crate::Error::Hub`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    /// There was no response: the connection failed or broke, or the status is a server error (5xx).
    #[error("{0}")]
    Unreachable(String),
    /// The response is not the requested one, or a local file cannot be written.
    #[error("{0}")]
    Other(String),
}

impl Cause {
    /// The same, with a file's name before the text.
    pub(crate) fn of_file(self, file: &str) -> Self {
        match self {
            Self::Unreachable(text) => Self::Unreachable(format!("{file}: {text}")),
            Self::Other(text) => Self::Other(format!("{file}: {text}")),
        }
    }

    /// The cause of a body that could not be read to its end.
    fn of_body(error: io::Error) -> Self {
        ureq::Error::from(error).into()
    }
}

impl From<String> for Cause {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

impl From<io::Error> for Cause {
    /// The cause where a file here is concerned, not a connection.
    fn from(error: io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<ureq::Error> for Cause {
    fn from(error: ureq::Error) -> Self {
        use ureq::Error::{
            BodyStalled, ConnectProxyFailed, ConnectionFailed, HostNotFound, Io, Protocol, Timeout, Tls,
        };
        let text = error.to_string();
        match error {
            BodyStalled
            | ConnectProxyFailed(_)
            | ConnectionFailed
            | HostNotFound
            | Io(_)
            | Protocol(_)
            | Timeout(_)
            | Tls(_) => Self::Unreachable(text),
            _ => Self::Other(text),
        }
    }
}

/// Redirects of one request, at most.
const REDIRECTS: usize = 10;
/// Bytes of a download that are passed on at once.
const BUFFER: usize = 1 << 16;

/// A hub at an address.
pub(crate) struct Remote {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

/// A hub's description of a file.
#[derive(Debug)]
pub(crate) struct About {
    /// The commit that it is of.
    pub(crate) commit: Option<String>,
    /// The name of its content: its SHA-256 where it is stored as a large file, and otherwise git's hash of it.
    pub(crate) etag: String,
    /// The size in bytes, if the hub states it.
    pub(crate) size: Option<u64>,
}

impl Remote {
    pub(crate) fn new(endpoint: String, token: Option<String>) -> Self {
        let config = Agent::config_builder()
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(30)))
            .build();
        Self { agent: config.into(), endpoint, token }
    }

    /// The object at a path.
    pub(crate) fn json<T: DeserializeOwned>(&self, path: &str) -> Result<T, Cause> {
        let response = self.get(path, None, false)?;
        let mut body = Vec::new();
        response.into_body().into_reader().read_to_end(&mut body).map_err(Cause::of_body)?;
        serde_json::from_slice(&body).map_err(|error| format!("{path}: {error}").into())
    }

    /// The description of the file at a path by the hub itself, not by the host of a redirect.
    pub(crate) fn about(&self, path: &str) -> Result<About, Cause> {
        let response = self.get(path, Some("bytes=0-0"), true)?;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let etag = header("x-linked-etag").or_else(|| header("etag"));
        let etag = etag.ok_or_else(|| format!("{path}: expected an etag, found none"))?;
        let etag = etag.trim_start_matches("W/").trim_matches('"').to_owned();
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if etag.is_empty() || etag.starts_with('.') || !etag.chars().all(is_name) {
            return Err(format!("{path}: expected an etag that can name a file, found `{etag}`").into());
        }
        let size = header("x-linked-size")
            .or_else(|| header("content-range").and_then(|range| range.rsplit('/').next()))
            .or_else(|| header("content-length").filter(|_| response.status().as_u16() == 200));
        let size = size.and_then(|size| size.parse().ok());
        Ok(About { commit: header("x-repo-commit").map(str::to_owned), etag, size })
    }

    /// Fetches a file, starting at the byte where `part` ends, and reports the bytes fetched and the total. If the hub
    /// gives a hash, the content must match it; a file that does not match is removed.
    pub(crate) fn fetch(
        &self,
        path: &str,
        about: &About,
        part: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Cause> {
        let mut output = File::options().append(true).create(true).open(part)?;
        let mut done = output.metadata()?.len();
        if about.size.is_some_and(|size| done > size) {
            output.set_len(0)?;
            done = 0;
        }
        if about.size != Some(done) || done == 0 {
            let response = self.get(path, Some(&format!("bytes={done}-")), false)?;
            let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
            let from = header("content-range")
                .and_then(|range| range.trim_start_matches("bytes ").split('-').next());
            if response.status().as_u16() != 206 || from != Some(done.to_string().as_str()) {
                // The whole file comes.
                if response.status().as_u16() == 206 && from != Some("0") {
                    return Err(
                        format!("expected the bytes from {done} on, found those from {from:?} on").into()
                    );
                }
                output.set_len(0)?;
                done = 0;
            }
            let mut reader = response.into_body().into_reader();
            let mut buffer = vec![0; BUFFER];
            loop {
                let read = reader.read(&mut buffer).map_err(Cause::of_body)?;
                if read == 0 {
                    break;
                }
                output.write_all(&buffer[..read])?;
                done += read as u64;
                progress(done, about.size.unwrap_or(done));
            }
        }
        output.sync_all()?;
        if let Some(size) = about.size.filter(|size| *size != done) {
            return Err(format!("expected {size} bytes, found {done}").into());
        }
        verify(part, &about.etag).inspect_err(|_| {
            if let Err(error) = fs::remove_file(part) {
                tracing::warn!("{}: could not be removed: {error}", part.display());
            }
        })
    }

    /// The answer at a path, redirects followed; with `stay`, only to addresses of the same host.
    fn get(&self, path: &str, range: Option<&str>, stay: bool) -> Result<Response<Body>, Cause> {
        let own = origin(&self.endpoint)?;
        let mut url = format!("{}/{path}", self.endpoint);
        for _ in 0..REDIRECTS {
            let mut request = self.agent.get(&url);
            if let Some(range) = range {
                request = request.header("Range", range).header("Accept-Encoding", "identity");
            }
            if let Some(token) = self.token.as_ref().filter(|_| origin(&url).is_ok_and(|found| found == own))
            {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            let response = request.call()?;
            if response.status().is_redirection() {
                let location = response.headers().get("location").and_then(|value| value.to_str().ok());
                let next = resolve(&url, location.ok_or_else(|| format!("{path}: a redirect to nowhere"))?)?;
                if stay && origin(&next)? != origin(&url)? {
                    return Ok(response);
                }
                url = next;
                continue;
            }
            let status = response.status();
            if !status.is_success() {
                let text = format!("{path}: the hub answers with the status {status}");
                let failed = status.is_server_error();
                return Err(if failed { Cause::Unreachable(text) } else { Cause::Other(text) });
            }
            return Ok(response);
        }
        Err(format!("{path}: more than {REDIRECTS} redirects").into())
    }
}

/// Scheme and authority of an address, in lower case.
fn origin(url: &str) -> Result<String, Cause> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") || authority.is_empty() {
        return Err(format!("expected an address of http or https, found `{url}`").into());
    }
    Ok(format!("{scheme}://{authority}").to_ascii_lowercase())
}

/// Where a redirect from `url` leads.
fn resolve(url: &str, location: &str) -> Result<String, Cause> {
    let scheme = url.split("://").next().unwrap_or_default();
    let next = if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{}{location}", origin(url)?)
    } else if location.contains("://") {
        location.to_owned()
    } else {
        let folder = url.split(['?', '#']).next().unwrap_or_default();
        let folder = folder.rsplit_once('/').map_or(folder, |(folder, _)| folder);
        format!("{folder}/{location}")
    };
    origin(&next)?;
    Ok(next)
}

/// Holds a file to the hash that its etag is.
fn verify(path: &Path, etag: &str) -> Result<(), Cause> {
    if !is_hash(etag) {
        tracing::warn!("{}: the hub gives no hash for it; only its length was checked", path.display());
    }
    match other_hash(path, etag)? {
        None => Ok(()),
        Some(found) => {
            Err(format!("expected content with the hash {etag}, found {found}; what came is removed").into())
        }
    }
}

/// Whether the name of a content is a hash of it.
fn is_hash(etag: &str) -> bool {
    matches!(etag.len(), 40 | 64) && etag.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The hash of a file if its content does not match `etag`; none if it matches, or if `etag` is no hash.
pub(crate) fn other_hash(path: &Path, etag: &str) -> io::Result<Option<String>> {
    if !is_hash(etag) {
        return Ok(None);
    }
    let found = if etag.len() == 64 {
        hash(Sha256::new(), path)?
    } else {
        let head = format!("blob {}\0", fs::metadata(path)?.len());
        hash(Sha1::new().chain_update(head), path)?
    };
    Ok((!found.eq_ignore_ascii_case(etag)).then_some(found))
}

fn hash<D: Digest>(mut digest: D, path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        digest.update(&buffer[..read]);
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_follow_the_standard_and_an_origin_is_scheme_host_and_port() {
        let at = |location: &str| resolve("https://hub.co/a/b?c=d", location).unwrap();
        assert_eq!(at("/x/y"), "https://hub.co/x/y");
        assert_eq!(at("z"), "https://hub.co/a/z");
        assert_eq!(at("//cdn.co/z"), "https://cdn.co/z");
        assert_eq!(at("http://cdn.co/z"), "http://cdn.co/z");
        assert!(resolve("https://hub.co/a", "file:///etc/passwd").is_err());
        let same = |one: &str, two: &str| origin(one).unwrap() == origin(two).unwrap();
        assert!(same("https://hub.co", "HTTPS://Hub.co/x?y"));
        for other in
            ["http://hub.co", "https://hub.co:444", "https://hub.co@evil.co", "https://hub.co.evil.co"]
        {
            assert!(!same("https://hub.co", other), "{other}");
        }
    }

    #[test]
    fn a_broken_connection_is_no_answer_and_a_failed_write_is_no_broken_connection() {
        let error = || io::Error::from(io::ErrorKind::UnexpectedEof);
        for cause in [Cause::of_body(error()), ureq::Error::HostNotFound.into()] {
            assert!(matches!(cause.of_file("f"), Cause::Unreachable(text) if text.starts_with("f: ")));
        }
        for cause in [Cause::from(error()), ureq::Error::InvalidProxyUrl.into(), "text".to_owned().into()] {
            assert!(matches!(cause.of_file("f"), Cause::Other(text) if text.starts_with("f: ")));
        }
    }

    #[test]
    fn a_file_is_held_to_sha_256_and_to_gits_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "abc").unwrap();
        // `printf abc | sha256sum` and `printf abc | git hash-object --stdin`.
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let git = "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f";
        for etag in [sha256, git] {
            verify(&path, etag).unwrap();
            let other = etag.replace('b', "c");
            assert!(verify(&path, &other).unwrap_err().to_string().contains(&other));
        }
        verify(&path, "no-hash").unwrap();
    }
}
