//! Models of the Hugging Face Hub, in the cache that every program of its kind shares.
//!
//! The cache has a folder for each model: `models--org--name/{blobs,refs,snapshots}`, where `refs/main` holds a commit
//! and `snapshots/COMMIT` the files of it. A model that is there needs no network.
//!
//! This file fences `hf-hub` in: it is asked for files by names of our own only, and what it brings is measured.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use hf_hub::{
    Cache, Repo, RepoType,
    api::sync::{ApiBuilder, ApiRepo},
};
use serde::Deserialize;

use crate::{
    error::{Error, Result},
    json::{self, parse},
};

/// The model whose files are where no revision is named.
const MAIN: &str = "main";

/// What a model folder may hold besides its weights.
const FILES: [&str; 18] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "README.md",
];

/// A weights file and the index that may stand for it, in the order in which they are looked for.
const WEIGHTS: [[&str; 2]; 2] = [
    ["model.safetensors", "model.safetensors.index.json"],
    ["pytorch_model.bin", "pytorch_model.bin.index.json"],
];

/// A model on the hub: `name` or `org/name`, and after `@` a branch, a tag or a commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelId {
    name: String,
    revision: String,
}

impl ModelId {
    /// The name, with the organisation's before it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The branch, tag or commit; `main` where none was named.
    #[must_use]
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Whether the revision is a whole commit, which never changes.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.revision.len() == 40 && self.revision.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.revision)
    }
}

impl FromStr for ModelId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let is_word = |word: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            !word.is_empty() && word.chars().all(known) && !word.starts_with('.') && !word.contains("..")
        };
        let parts = name.split('/').count();
        if parts > 2 || !name.split('/').all(is_word) || !revision.split('/').all(is_word) {
            return Err(Error::ModelId { found: text.into() });
        }
        Ok(Self { name: name.into(), revision: revision.into() })
    }
}

/// Where models come from.
#[derive(Debug, Clone)]
pub struct Hub {
    cache: PathBuf,
    endpoint: String,
    token: Option<String>,
    offline: bool,
}

/// How far the download of a file is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The file's name.
    pub file: &'a str,
    /// The bytes that are there.
    pub done: u64,
    /// The bytes that it has.
    pub total: u64,
}

impl Hub {
    /// The address of the public hub.
    pub const ENDPOINT: &'static str = "https://huggingface.co";

    /// The public hub, with the cache in the folder `cache`.
    #[must_use]
    pub fn new(cache: impl Into<PathBuf>) -> Self {
        Self { cache: cache.into(), endpoint: Self::ENDPOINT.into(), token: None, offline: false }
    }

    /// The same at another address.
    #[must_use]
    pub fn with_endpoint(self, endpoint: impl Into<String>) -> Self {
        let endpoint: String = endpoint.into();
        Self { endpoint: endpoint.trim_end_matches('/').to_owned(), ..self }
    }

    /// The same with a token for models that are not public.
    #[must_use]
    pub fn with_token(self, token: Option<String>) -> Self {
        Self { token, ..self }
    }

    /// The same without any use of the network where `offline`.
    #[must_use]
    pub fn offline(self, offline: bool) -> Self {
        Self { offline, ..self }
    }

    /// The folder of a model. What is not in the cache is fetched first: the config, the tokenizer's files and one form
    /// of the weights. A commit that is there is not asked for again; a branch is, and where the hub cannot be reached,
    /// what the cache has of it is used with a warning.
    ///
    /// # Errors
    /// [`Error::NotCached`] where there is no network and the cache lacks the model; [`Error::Hub`] where the hub does
    /// not have it or cannot be reached; [`Error::MissingFile`] where it has no weights of a form that can be read;
    /// [`Error::Io`].
    pub fn folder(&self, id: &ModelId, progress: &mut dyn FnMut(Progress<'_>)) -> Result<PathBuf> {
        let cached = self.cached(id)?;
        match cached {
            Some(folder) if self.offline || id.is_pinned() => Ok(folder),
            None if self.offline => Err(Error::NotCached { id: id.to_string(), cache: self.cache.clone() }),
            Some(folder) => self.fetch(id, progress).or_else(|error| match error {
                Error::Hub { source, .. } => {
                    tracing::warn!(%id, error = %source, "the hub cannot be reached; the cached files are used");
                    Ok(folder)
                }
                other => Err(other),
            }),
            None => self.fetch(id, progress),
        }
    }

    fn model_folder(&self, id: &ModelId) -> PathBuf {
        self.cache.join(Repo::new(id.name.clone(), RepoType::Model).folder_name())
    }

    /// The commit's folder, where all that a model needs is there.
    fn cached(&self, id: &ModelId) -> Result<Option<PathBuf>> {
        let folder = self.model_folder(id);
        let commit = if id.is_pinned() {
            id.revision.clone()
        } else {
            let Some(commit) = json::text(&folder.join("refs").join(&id.revision))? else { return Ok(None) };
            commit.trim().to_owned()
        };
        let snapshot = folder.join("snapshots").join(commit);
        Ok(is_whole(&snapshot)?.then_some(snapshot))
    }

    fn fetch(&self, id: &ModelId, progress: &mut dyn FnMut(Progress<'_>)) -> Result<PathBuf> {
        let wrong =
            |source: hf_hub::api::sync::ApiError| Error::Hub { id: id.to_string(), source: source.into() };
        let cache = Cache::new(self.cache.clone());
        let api = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(self.endpoint.clone())
            .with_token(self.token.clone())
            .with_progress(false)
            .build()
            .map_err(wrong)?;
        let repo = Repo::with_revision(id.name.clone(), RepoType::Model, id.revision.clone());
        let remote = api.repo(repo.clone());
        let info = remote.info().map_err(wrong)?;
        if !(7..=64).contains(&info.sha.len()) || !info.sha.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let source = format!("expected a commit, found `{}`", info.sha).into();
            return Err(Error::Hub { id: id.to_string(), source });
        }
        let there: BTreeSet<&str> = info.siblings.iter().map(|file| file.rfilename.as_str()).collect();
        let snapshot = cache.repo(repo).pointer_path(&info.sha);
        let mut files = Files { id, remote: &remote, snapshot: &snapshot, progress };
        for file in FILES.into_iter().filter(|file| there.contains(file)) {
            files.get(file)?;
        }
        for [single, index] in WEIGHTS {
            if there.contains(single) {
                files.get(single)?;
                return Ok(snapshot);
            }
            if there.contains(index) {
                files.get(index)?;
                for shard in shards(&snapshot.join(index))? {
                    files.get(&shard)?;
                }
                return Ok(snapshot);
            }
        }
        Err(Error::MissingFile {
            folder: snapshot,
            expected: "model.safetensors or pytorch_model.bin, or their shards",
        })
    }
}

/// The files of one commit.
struct Files<'a> {
    id: &'a ModelId,
    remote: &'a ApiRepo,
    snapshot: &'a Path,
    progress: &'a mut dyn FnMut(Progress<'_>),
}

impl Files<'_> {
    fn get(&mut self, file: &str) -> Result<()> {
        if self.snapshot.join(file).exists() {
            return Ok(());
        }
        let mut total = 0;
        let tell = Tell { file, done: 0, total: &mut total, progress: self.progress };
        let path = self.remote.download_with_progress(file, tell);
        let fault = |source| Error::Hub { id: self.id.to_string(), source };
        let path = path.map_err(|source| fault(source.into()))?;
        let found = path.metadata().map_err(Error::io(&path, "read"))?.len();
        if found != total {
            // A file that is cut short would be taken for whole from now on.
            let blob = path.canonicalize().map_err(Error::io(&path, "read"))?;
            for path in [&path, &blob] {
                std::fs::remove_file(path).map_err(Error::io(path, "remove"))?;
            }
            return Err(fault(format!("{file}: expected {total} bytes, found {found}").into()));
        }
        if path != self.snapshot.join(file) {
            let found = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
            return Err(fault(format!("{file}: the model changed while it was fetched, to {found}").into()));
        }
        Ok(())
    }
}

/// Passes `hf-hub`'s counts on.
struct Tell<'a> {
    file: &'a str,
    done: u64,
    total: &'a mut u64,
    progress: &'a mut dyn FnMut(Progress<'_>),
}

impl hf_hub::api::Progress for Tell<'_> {
    fn init(&mut self, size: usize, _: &str) {
        *self.total = size as u64;
        self.done = 0;
    }

    fn update(&mut self, size: usize) {
        self.done += size as u64;
        (self.progress)(Progress { file: self.file, done: self.done, total: *self.total });
    }

    fn finish(&mut self) {}
}

/// Whether a snapshot has its config and one form of its weights.
fn is_whole(snapshot: &Path) -> Result<bool> {
    if !snapshot.join("config.json").exists() {
        return Ok(false);
    }
    for [single, index] in WEIGHTS {
        if snapshot.join(single).exists() {
            return Ok(true);
        }
        let index = snapshot.join(index);
        if index.exists() {
            return Ok(shards(&index)?.iter().all(|shard| snapshot.join(shard).exists()));
        }
    }
    Ok(false)
}

/// The files that an index names, which must lie beside it.
fn shards(index: &Path) -> Result<BTreeSet<String>> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: std::collections::BTreeMap<String, String>,
    }
    let text = json::text(index)?.unwrap_or_default();
    let names: BTreeSet<String> = parse::<Index>(index, &text)?.weight_map.into_values().collect();
    match names.iter().find(|name| Path::new(name).file_name().is_none_or(|file| file != name.as_str())) {
        None => Ok(names),
        Some(name) => Err(Error::Config {
            path: index.into(),
            field: "weight_map".into(),
            expected: "file names".into(),
            found: format!("`{name}`"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::ModelId;

    #[test]
    fn an_id_is_a_name_and_maybe_a_revision() {
        let id = |text: &str| text.parse::<ModelId>().map(|id| (id.name, id.revision)).ok();
        let expected = |name: &str, revision: &str| Some((name.to_owned(), revision.to_owned()));
        assert_eq!(id("gpt2"), expected("gpt2", "main"));
        assert_eq!(id("facebook/bart-base@refs/pr/3"), expected("facebook/bart-base", "refs/pr/3"));
        for wrong in ["", "a/b/c", "a/", "../b", "a@", "a b", "a/..", "a@../x", "/a", "a@x@y"] {
            assert_eq!(id(wrong), None, "{wrong}");
        }
        assert!("a@0123456789abcdef0123456789abcdef01234567".parse::<ModelId>().unwrap().is_pinned());
        assert!(!"a@main".parse::<ModelId>().unwrap().is_pinned());
    }
}
