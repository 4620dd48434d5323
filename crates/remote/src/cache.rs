//! Responses on disk, by the hash of their request.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sporran_kilt::jsonl;

use crate::Result;

/// The version of the files.
const VERSION: u32 = 1;

/// The content of the file `CACHEDIR.TAG`, by which sources of documents and backups leave the folder out.
const TAG: &str =
    "Signature: 8a477f597d28d172789f06886806bc55\n# Responses of endpoints, by the hash of their request.\n";

/// A folder of responses. A file appears complete or not at all, so a killed run leaves no half response.
pub(crate) struct Cache {
    folder: PathBuf,
    /// Whether the log says that the folder may only be read.
    is_told: AtomicBool,
}

/// A file: the request, the response, and the response's hash.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    url: String,
    request: Value,
    response: Value,
    blake3: String,
}

/// BLAKE3 of a request: of its address and its body.
pub(crate) fn hash(url: &str, request: &Value) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&VERSION.to_le_bytes());
    hasher.update(url.as_bytes());
    hasher.update(b"\n");
    hasher.update(request.to_string().as_bytes());
    hasher.finalize()
}

impl Cache {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), is_told: AtomicBool::new(false) }
    }

    fn path(&self, hash: &blake3::Hash) -> PathBuf {
        let hash = hash.to_hex();
        self.folder.join(&hash[..2]).join(format!("{}.json", &hash[2..]))
    }

    /// The response to a request. None if there is none, or its file is damaged.
    pub(crate) fn get(&self, url: &str, request: &Value) -> Option<Value> {
        let path = self.path(&hash(url, request));
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("{}: not read, so the request is sent again: {error}", path.display());
                return None;
            }
        };
        let is_whole = |stored: &Stored| {
            stored.version == VERSION
                && stored.url == url
                && stored.request == *request
                && stored.blake3 == digest(&stored.response)
        };
        let stored = serde_json::from_slice::<Stored>(&text).ok().filter(is_whole);
        if stored.is_none() {
            tracing::warn!("{}: damaged, so the request is sent again", path.display());
        }
        stored.map(|stored| stored.response)
    }

    /// Stores the response to a request. Where the folder may only be read, the log says so once, and nothing is stored.
    ///
    /// # Errors
    /// [`crate::Error::Cache`] if the file cannot be written for another reason.
    pub(crate) fn put(&self, url: &str, request: &Value, response: &Value) -> Result<()> {
        match self.write(url, request, response) {
            Err(sporran_kilt::Error::Io { path, source, .. })
                if matches!(
                    source.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                if !self.is_told.swap(true, Ordering::Relaxed) {
                    tracing::warn!("{}: responses are not stored: {source}", path.display());
                }
                Ok(())
            }
            done => Ok(done?),
        }
    }

    fn write(&self, url: &str, request: &Value, response: &Value) -> sporran_kilt::Result<()> {
        let path = self.path(&hash(url, request));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|source| sporran_kilt::Error::Io {
                path: folder.to_owned(),
                action: "create",
                source,
            })?;
        }
        let tag = self.folder.join("CACHEDIR.TAG");
        if !tag.is_file() {
            jsonl::write(tag, TAG.as_bytes())?;
        }
        let stored = Stored {
            version: VERSION,
            url: url.to_owned(),
            request: request.clone(),
            response: response.clone(),
            blake3: digest(response),
        };
        // Plain values are always valid JSON.
        let mut json = serde_json::to_vec(&stored).unwrap_or_default();
        json.push(b'\n');
        jsonl::write(path, &json)
    }
}

fn digest(response: &Value) -> String {
    blake3::hash(response.to_string().as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_response_is_found_by_its_request_and_a_damaged_one_is_not() {
        let place = tempfile::tempdir().unwrap();
        let cache = Cache::new(&place.path().join("new"));
        let (request, response) = (json!({ "a": 1 }), json!({ "b": [0.1, 2] }));
        assert_eq!(cache.get("u", &request), None);
        cache.put("u", &request, &response).unwrap();
        assert_eq!(cache.get("u", &request), Some(response.clone()));
        assert_eq!(fs::read_to_string(place.path().join("new/CACHEDIR.TAG")).unwrap(), TAG);
        assert_eq!(cache.get("v", &request), None);
        assert_eq!(cache.get("u", &json!({ "a": 2 })), None);
        let path = cache.path(&hash("u", &request));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert_eq!(cache.get("u", &request), None);
        fs::write(&path, text.replace("0.1", "0.3")).unwrap();
        assert_eq!(cache.get("u", &request), None);
        cache.put("u", &request, &response).unwrap();
        assert_eq!(cache.get("u", &request), Some(response));
    }
}
