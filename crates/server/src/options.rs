//! The options of a server.

use std::{
    fmt, fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    time::Duration,
};

use sporran_pipeline::workflows::answer::AskOptions;
use sporran_transformers::{DeviceName, Precision};

use crate::{BrowseOptions, Error, Failure, Result};

/// The shortest key.
const LEAST: usize = 16;

/// What a server serves, where it listens, and its limits.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The address to listen on. Only loopback addresses are safe without a key.
    pub host: IpAddr,
    /// The port; 0 takes a free one.
    pub port: u16,
    /// The key that requests need; without one, all requests are answered.
    pub key: Option<Key>,
    /// Documents, or configs of any workflow that is served, with the configs of their key `then`. A config's key `name` is the
    /// name of its mount; documents have the name of their file or folder.
    pub mounts: Vec<AskOptions>,
    /// Models that are served by themselves.
    pub models: ServedModels,
    /// The runs and the knowledge bases that the page shows.
    pub browse: BrowseOptions,
    /// The limits.
    pub limits: Limits,
}

impl ServerOptions {
    /// A server on a free port of the loopback address, which serves nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            key: None,
            mounts: Vec::new(),
            models: ServedModels::default(),
            browse: BrowseOptions::default(),
            limits: Limits::default(),
        }
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Models that are served by themselves.
#[derive(Clone, Debug, Default)]
pub struct ServedModels {
    /// The folder of an encoder.
    pub embedder: Option<PathBuf>,
    /// The folder of a reranker.
    pub reranker: Option<PathBuf>,
    /// The folder of a classifier of texts or of pairs of texts.
    pub classifier: Option<PathBuf>,
    /// The data type of their weights.
    pub precision: Precision,
    /// Their device.
    pub device: DeviceName,
}

/// The limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest body, in bytes.
    pub body: usize,
    /// The longest time of a request without a stream.
    pub time: Duration,
    /// The longest time of a stream.
    pub stream_time: Duration,
    /// The number of open connections.
    pub connections: usize,
    /// The number of tokens that may wait for a model. Further requests are refused.
    pub waiting: usize,
    /// The number of tokens of a batch.
    pub batch_tokens: usize,
    /// The time for which a batch waits for more requests.
    pub window: Duration,
    /// The number of answers that a generator writes together.
    pub running: usize,
    /// The number of tokens of an answer that a request may ask for.
    pub answer_tokens: usize,
    /// The number of hits of a search, and of results that a request may ask for.
    pub hits: usize,
    /// The number of hits of all searches of a request.
    pub all_hits: usize,
    /// The time in which requests that were begun are answered after a stop.
    pub grace: Duration,
}

impl Limits {
    /// A number of results that the server gives.
    pub(crate) fn checked(&self, field: &str, wanted: Option<usize>) -> Result<Option<usize>, Failure> {
        let most = self.hits;
        match wanted {
            Some(count) if count == 0 || count > most => {
                let message = format!("`{field}`: expected 1 to {most}, found {count}");
                Err(Failure::invalid(field, message))
            }
            wanted => Ok(wanted),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 2 << 20,
            time: Duration::from_secs(120),
            stream_time: Duration::from_secs(600),
            connections: 1024,
            waiting: 1 << 18,
            batch_tokens: 1 << 14,
            window: Duration::from_millis(2),
            running: 32,
            answer_tokens: 4096,
            hits: 1000,
            all_hits: 20_000,
            grace: Duration::from_secs(30),
        }
    }
}

/// The key that requests need. It is kept as a hash, so that no log has it.
#[derive(Clone, Copy)]
pub struct Key(blake3::Hash);

impl Key {
    /// A key.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self(blake3::hash(key.as_bytes()))
    }

    /// The key on the first line of a file.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that cannot be read, [`Error::KeyText`] for a key of other characters than visible ones of
    /// ASCII, [`Error::Key`] for a short key.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path)
            .map_err(|source| Error::Io { what: format!("reading {}", path.display()), source })?;
        let text = String::from_utf8(bytes).map_err(|_| Error::KeyText { path: path.to_owned() })?;
        let key = text.lines().next().unwrap_or_default().trim();
        // Headers carry no others.
        if !key.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(Error::KeyText { path: path.to_owned() });
        }
        if key.len() < LEAST {
            return Err(Error::Key { path: path.to_owned(), least: LEAST, found: key.len() });
        }
        Ok(Self::new(key))
    }

    /// Whether a text is the key. The time does not depend on where they differ: hashes are compared, in constant time.
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        self.0 == blake3::hash(text.as_bytes())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_from_the_first_line_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "0123456789abcdef\nnote\n").unwrap();
        let key = Key::read(&path).unwrap();
        assert!(key.is("0123456789abcdef") && !key.is("0123456789abcdeF") && !key.is(""));
        assert_eq!(format!("{key:?}"), "Key(..)");
        fs::write(&path, "short\n").unwrap();
        let message = Key::read(&path).unwrap_err().to_string();
        assert!(message.contains("at least 16 characters") && message.ends_with("found 5"), "{message}");
        assert!(matches!(Key::read(&folder.path().join("none")), Err(Error::Io { .. })));
        fs::write(&path, "0123456789abcdéf\n").unwrap();
        let message = Key::read(&path).unwrap_err().to_string();
        assert!(message.contains("visible ASCII characters on line 1"), "{message}");
    }
}
