//! Models of the Hugging Face Hub, in the cache that every program of its kind shares.
//!
//! The cache has a folder for each model: `models--org--name/{blobs,refs,snapshots}`, where `refs/main` holds a commit
//! and `snapshots/COMMIT` the files of it. A cached model needs no network.
//!
//! [`Remote`] asks for files, by names of our own only, and checks them against their hashes.

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, File},
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::Deserialize;

use crate::{
    error::{Error, Result},
    json::{self, parse},
    remote::{About, Cause, Remote, other_hash},
    save,
    sentence::{INPUT_FILES, MODULE_FILES, module_folders},
    tokenizer,
};

/// The model whose files are where no revision is named.
const MAIN: &str = "main";

/// The files of a model folder besides its weights and its tokenizer.
const FILES: [&str; 6] = [
    "config.json",
    "adapter_config.json",
    "generation_config.json",
    "modules.json",
    "config_sentence_transformers.json",
    "README.md",
];

/// The files of a model folder besides its weights.
fn companions() -> impl Iterator<Item = &'static str> {
    FILES.into_iter().chain(tokenizer::FILES).chain(INPUT_FILES)
}

/// A weights file and the index that may replace it, in the order of the search.
const WEIGHTS: [[&str; 2]; 4] = [
    ["model.safetensors", "model.safetensors.index.json"],
    ["pytorch_model.bin", "pytorch_model.bin.index.json"],
    ["adapter_model.safetensors", "adapter_model.safetensors.index.json"],
    ["adapter_model.bin", "adapter_model.bin.index.json"],
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
    /// The bytes present.
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

    /// The folder of a model. Files that are not in the cache are fetched first: the config, the tokenizer's files and one form
    /// of the weights. A cached commit is not requested again; a branch is. If the hub cannot be reached (a failed
    /// connection or a status of 5xx), the cached files of the branch are used with a warning. Every other failure is an
    /// error: a refusal, a wrong length, a wrong hash.
    ///
    /// # Errors
    /// [`Error::NotCached`] where there is no network and the cache lacks the model; [`Error::Hub`] where the hub refuses
    /// it, where a file does not match the hub's description, or where the hub cannot be reached and the cache lacks the
    /// model; [`Error::MissingFile`] where it has no weights of a form that can be read; [`Error::Io`].
    pub fn folder(&self, id: &ModelId, progress: &mut dyn FnMut(Progress<'_>)) -> Result<PathBuf> {
        self.open(id, Trust::Cache, progress)
    }

    /// As [`folder`](Self::folder), but every file that is in the cache is read and compared with its hash, where the cache
    /// knows one. A file that has another content is fetched again.
    ///
    /// # Errors
    /// As for [`folder`](Self::folder); [`Error::Damaged`] for a file with another content where there is no network or the
    /// hub cannot be reached.
    pub fn pull(&self, id: &ModelId, progress: &mut dyn FnMut(Progress<'_>)) -> Result<PathBuf> {
        self.open(id, Trust::Hashes, progress)
    }

    fn open(&self, id: &ModelId, trust: Trust, progress: &mut dyn FnMut(Progress<'_>)) -> Result<PathBuf> {
        let snapshot = self.snapshot(id)?;
        // Before any of their content is used, such as the names of shards.
        let damaged = match (trust, &snapshot) {
            (Trust::Hashes, Some(folder)) => damage(folder)?,
            _ => None,
        };
        let cached = match snapshot {
            Some(folder) if damaged.is_none() && is_whole(&folder)? => Some(folder),
            _ => None,
        };
        match (cached, damaged) {
            (Some(folder), _) if self.offline || id.is_pinned() => Ok(folder),
            (_, Some(error)) if self.offline => Err(error),
            (None, None) if self.offline => {
                Err(Error::NotCached { id: id.to_string(), cache: self.cache.clone() })
            }
            (cached, damaged) => {
                match (self.fetch(id, trust, cached.as_deref(), progress), cached, damaged) {
                    (Err(Error::Hub { source, .. }), Some(folder), _) if is_unreachable(&*source) => {
                        tracing::warn!(%id, error = %source, "the hub cannot be reached; the cached files are used");
                        Ok(folder)
                    }
                    (Err(Error::Hub { source, .. }), _, Some(error)) if is_unreachable(&*source) => {
                        tracing::warn!(%id, error = %source, "the hub cannot be reached");
                        Err(error)
                    }
                    (fetched, ..) => fetched,
                }
            }
        }
    }

    fn model_folder(&self, id: &ModelId) -> PathBuf {
        self.cache.join(format!("models--{}", id.name.replace('/', "--")))
    }

    /// The commit's folder, where the cache knows the commit.
    fn snapshot(&self, id: &ModelId) -> Result<Option<PathBuf>> {
        let folder = self.model_folder(id);
        let commit = if id.is_pinned() {
            id.revision.clone()
        } else {
            let Some(commit) = json::text(&folder.join("refs").join(&id.revision))? else { return Ok(None) };
            commit.trim().to_owned()
        };
        Ok(Some(folder.join("snapshots").join(commit)))
    }

    /// Fetches the missing files of a model. The files of the snapshot `cached` are known to be valid.
    fn fetch(
        &self,
        id: &ModelId,
        trust: Trust,
        cached: Option<&Path>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<PathBuf> {
        let wrong = |cause: Cause| Error::Hub { id: id.to_string(), source: cause.into() };
        let remote = Remote::new(self.endpoint.clone(), self.token.clone());
        let revision = id.revision.replace('/', "%2F");
        let info: Info =
            remote.json(&format!("api/models/{}/revision/{revision}", id.name)).map_err(wrong)?;
        if !(7..=64).contains(&info.sha.len()) || !info.sha.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong(format!("expected a commit, found `{}`", info.sha).into()));
        }
        let there: BTreeSet<&str> = info.siblings.iter().map(|file| file.rfilename.as_str()).collect();
        let folder = self.model_folder(id);
        let snapshot = folder.join("snapshots").join(&info.sha);
        // By the commit, since the branch may move on between two files.
        let resolve = format!("{}/resolve/{}", id.name, info.sha);
        let files = Files {
            remote: &remote,
            resolve: &resolve,
            commit: &info.sha,
            folder: &folder,
            snapshot: &snapshot,
            trust,
        };
        let is_right = cached == Some(&*snapshot);
        let mut files = Fetching { id, files, is_right, progress };
        // The branch refers to the commit once it is complete.
        let known = || {
            let path = folder.join("refs").join(&id.revision);
            let parent = path.parent().unwrap_or(&folder);
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(&path, &info.sha))
                .map_err(Error::io(&path, "write"))
        };
        for file in companions().filter(|file| there.contains(file)) {
            files.get(file)?;
        }
        for module in module_folders(&snapshot)? {
            for file in MODULE_FILES.map(|file| format!("{module}/{file}")) {
                if there.contains(file.as_str()) {
                    files.get(&file)?;
                }
            }
        }
        for [single, index] in WEIGHTS {
            if there.contains(single) {
                files.get(single)?;
                known()?;
                return Ok(snapshot);
            }
            if there.contains(index) {
                files.get(index)?;
                for shard in shards(&snapshot.join(index))? {
                    files.get(&shard)?;
                }
                known()?;
                return Ok(snapshot);
            }
        }
        Err(Error::MissingFile {
            folder: snapshot,
            expected: "model.safetensors or pytorch_model.bin, or their shards",
        })
    }
}

/// Which files of the cache are used without reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// Every existing file.
    Cache,
    /// A file whose content has its hash, and one whose hash is not known.
    Hashes,
}

impl Trust {
    /// Whether the file at `path`, whose content has the name `etag`, is taken.
    fn accepts(self, path: &Path, etag: &str) -> std::io::Result<bool> {
        Ok(path.exists() && (self == Self::Cache || other_hash(path, etag)?.is_none()))
    }
}

/// The first model file of a snapshot whose content does not match its hash.
fn damage(snapshot: &Path) -> Result<Option<Error>> {
    let first = |files: Vec<String>| {
        for path in files.into_iter().map(|file| snapshot.join(file)).filter(|path| path.exists()) {
            let Some(expected) = name_of_content(&path) else { continue };
            if let Some(found) = other_hash(&path, &expected).map_err(Error::io(&path, "read"))? {
                return Ok(Some(Error::Damaged { path, expected, found }));
            }
        }
        Ok(None)
    };
    // Files that name other files come before them.
    let indices = WEIGHTS.map(|[_, index]| index);
    let named: Vec<String> = companions().chain(indices).map(str::to_owned).collect();
    if let Some(error) = first(named)? {
        return Ok(Some(error));
    }
    let of_module = |module: String| MODULE_FILES.map(|file| format!("{module}/{file}"));
    let files = module_folders(snapshot)?.into_iter().flat_map(of_module).chain(weights(snapshot)?);
    first(files.collect())
}

/// The name of the content that a file of a snapshot is a link to.
fn name_of_content(file: &Path) -> Option<String> {
    fs::read_link(file).ok()?.file_name()?.to_str().map(str::to_owned)
}

/// Whether the cause of an [`Error::Hub`] is that the hub cannot be reached.
fn is_unreachable(source: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    matches!(source.downcast_ref::<Cause>(), Some(Cause::Unreachable(_)))
}

/// The hub's description of a model.
#[derive(Deserialize)]
struct Info {
    sha: String,
    siblings: Vec<Sibling>,
}

/// A file of it.
#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

/// The files of one commit, there and here.
#[derive(Clone, Copy)]
struct Files<'a> {
    remote: &'a Remote,
    /// The address of the files.
    resolve: &'a str,
    commit: &'a str,
    folder: &'a Path,
    snapshot: &'a Path,
    trust: Trust,
}

/// Files on their way.
struct Fetching<'a> {
    id: &'a ModelId,
    files: Files<'a>,
    /// Whether the existing files of the snapshot are known to be valid.
    is_right: bool,
    progress: &'a mut dyn FnMut(Progress<'_>),
}

impl Fetching<'_> {
    fn get(&mut self, file: &str) -> Result<()> {
        let place = self.files.snapshot.join(file);
        let is_there = match (self.files.trust, name_of_content(&place)) {
            (Trust::Hashes, Some(etag)) if !self.is_right => {
                Trust::Hashes.accepts(&place, &etag).map_err(Error::io(&place, "read"))?
            }
            // The hub defines its hash.
            (Trust::Hashes, None) => false,
            _ => place.exists(),
        };
        if is_there {
            return Ok(());
        }
        let tell = &mut |done, total| (self.progress)(Progress { file, done, total });
        self.files
            .get(file, tell)
            .map_err(|cause| Error::Hub { id: self.id.to_string(), source: cause.of_file(file).into() })
    }
}

impl Files<'_> {
    /// Puts the content of a file among the blobs, under its hash, and a link to it into the snapshot.
    fn get(&self, file: &str, tell: &mut dyn FnMut(u64, u64)) -> Result<(), Cause> {
        let path = format!("{}/{file}", self.resolve);
        let about = self.remote.about(&path)?;
        if let Some(found) = about.commit.as_ref().filter(|found| *found != self.commit) {
            return Err(format!("expected the commit {}, found {found}", self.commit).into());
        }
        let blobs = self.folder.join("blobs");
        fs::create_dir_all(&blobs)?;
        let blob = blobs.join(&about.etag);
        if !self.trust.accepts(&blob, &about.etag)? {
            self.blob(&path, &about, &blob, tell)?;
        }
        let place = self.snapshot.join(file);
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder)?;
        }
        // A link whose blob is gone.
        if place.symlink_metadata().is_ok() {
            fs::remove_file(&place)?;
        }
        link(&blob, &place, Path::new(file).components().count())?;
        Ok(())
    }

    /// Fetches a blob. A partial download of an earlier attempt is resumed.
    fn blob(
        &self,
        path: &str,
        about: &About,
        blob: &Path,
        tell: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Cause> {
        let name = |ending: &str| blob.with_file_name(format!("{}.{ending}", about.etag));
        // Another process may be at the same file; then this one waits, and finds it there.
        let lock = File::create(name("lock"))?;
        if let Err(error) = lock.lock() {
            tracing::warn!("{}: the file system cannot lock files: {error}", blob.display());
        }
        if !self.trust.accepts(blob, &about.etag)? {
            if blob.exists() {
                tracing::warn!(
                    "{}: its content is not what its hash says; it is fetched again",
                    blob.display()
                );
            }
            let part = name("part");
            self.remote.fetch(path, about, &part, tell)?;
            fs::rename(&part, blob)?;
            save::sync(blob.parent().unwrap_or(blob)).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// Links a snapshot's file to a blob. The file's path in the snapshot has `depth` components.
#[cfg(unix)]
fn link(blob: &Path, place: &Path, depth: usize) -> std::io::Result<()> {
    let above = "../".repeat(depth + 1);
    let name = blob.file_name().unwrap_or_default().to_string_lossy();
    std::os::unix::fs::symlink(format!("{above}blobs/{name}"), place)
}

/// Makes a snapshot's file from a blob.
#[cfg(not(unix))]
fn link(blob: &Path, place: &Path, _: usize) -> std::io::Result<()> {
    fs::copy(blob, place).map(|_| ())
}

/// Whether a snapshot has its config and one form of its weights.
fn is_whole(snapshot: &Path) -> Result<bool> {
    let weights = weights(snapshot)?;
    Ok(["config.json", "adapter_config.json"].iter().any(|file| snapshot.join(file).exists())
        && !weights.is_empty()
        && weights.iter().all(|file| snapshot.join(file).exists()))
}

/// The files of a snapshot's weights: one, or an index and its shards, which may be missing. None if both are missing.
fn weights(snapshot: &Path) -> Result<Vec<String>> {
    for [single, index] in WEIGHTS {
        if snapshot.join(single).exists() {
            return Ok(vec![single.to_owned()]);
        }
        let path = snapshot.join(index);
        if path.exists() {
            return Ok(std::iter::once(index.to_owned()).chain(shards(&path)?).collect());
        }
    }
    Ok(Vec::new())
}

/// The files that an index names. They must be in the same folder as the index.
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
