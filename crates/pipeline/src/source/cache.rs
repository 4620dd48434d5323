//! The folder of cached indexes: one folder for each set of sources, with their passage store and their indexes.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use sporran_kilt::{Error as FileError, folder::leftovers, hash_json, jsonl};

use crate::{Error, Result, run_dir::integrity::is_part};

/// The file that describes a folder of the cache.
const CARD: &str = "source.json";
/// The folder of the responses of endpoints in a cache.
pub(crate) const RESPONSES: &str = "responses";

/// The content of [`CARD`].
#[derive(Debug, Default, Serialize, Deserialize)]
struct Card {
    /// The sources, as absolute paths.
    sources: Vec<PathBuf>,
    /// The hash of the passages' texts.
    #[serde(default)]
    texts: String,
    /// The name of the folder of the passage store.
    #[serde(default)]
    store: String,
    /// When the indexes were used last, in seconds since 1970.
    used: u64,
}

/// The indexes of a set of sources, or the responses of endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CachedIndexes {
    /// The name of the folder.
    pub name: String,
    /// The folder.
    pub folder: PathBuf,
    /// The sources, as absolute paths. Responses have none.
    pub sources: Vec<PathBuf>,
    /// When they were used last, in seconds since 1970.
    pub used: u64,
    /// The size of all files in bytes.
    pub bytes: u64,
    /// The passage store and the indexes, by name.
    pub parts: Vec<CachedPart>,
}

/// A passage store or an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CachedPart {
    /// The name of its folder, such as `bm25-0123456789ab`.
    pub name: String,
    /// The size of its files in bytes.
    pub bytes: u64,
}

/// A number of bytes in words, such as `1.2 MiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// The folder of a set of sources in a cache: the name of the first source, and a hash of all absolute paths.
///
/// # Errors
/// [`Error::Io`] for a source that does not exist.
pub fn folder_of(cache: &Path, sources: &[PathBuf]) -> Result<PathBuf> {
    let paths = absolute(sources)?;
    let stem =
        paths.first().and_then(|path| path.file_stem()).map(|stem| stem.to_string_lossy().into_owned());
    let letters = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' };
    let stem: String = stem.unwrap_or_default().chars().map(letters).take(40).collect();
    let stem = stem.trim_start_matches('-');
    let stem = if stem.is_empty() { "root" } else { stem };
    Ok(cache.join(format!("{stem}-{}", &hash_json(&paths)[..8])))
}

/// The one name of each source, whatever path leads to it: absolute and without links.
///
/// # Errors
/// [`Error::Io`] for a source that does not exist.
pub(crate) fn absolute(sources: &[PathBuf]) -> Result<Vec<PathBuf>> {
    sources.iter().map(|path| fs::canonicalize(path).map_err(Error::io(path, "find"))).collect()
}

/// Notes the use of a folder's indexes, if the folder can be written. If the texts of the sources are others than before,
/// removes the stores and the indexes of the earlier contents; if only the metadata are others, the earlier store. `store` is
/// the folder of the passage store, `texts` the hash of its texts, and `kept` are the paths of all parts in use. Returns the
/// size in bytes.
///
/// # Errors
/// [`Error::Io`] if the folder cannot be written although its indexes are new.
pub(crate) fn keep<'p>(
    (store, texts): (&'p Path, &str),
    sources: &[PathBuf],
    kept: impl Iterator<Item = &'p Path>,
) -> Result<u64> {
    let folder = store.parent().unwrap_or(store);
    let kept: BTreeSet<&Path> = kept.chain([store]).collect();
    let name = name_of(store);
    let known = read_card(folder)?;
    let has_other_texts = known.as_ref().is_some_and(|card| card.texts != texts);
    // An earlier version of the program named sources in several ways, and had a store for each.
    let is_earlier = known.as_ref().is_some_and(|card| card.store.is_empty());
    let is_old = |part: &str| {
        has_other_texts
            || (is_earlier && (part.starts_with("store-") || part.starts_with("documents-")))
            || known.as_ref().is_some_and(|card| card.store == part)
    };
    let parts = if known.is_some() { parts(folder)? } else { Vec::new() };
    for part in parts.into_iter().map(|part| part.name).filter(|part| is_old(part)) {
        let path = folder.join(part);
        if !kept.contains(path.as_path()) {
            match fs::remove_dir_all(&path) {
                // Another process removes it, too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => done.map_err(Error::io(&path, "remove"))?,
            }
        }
    }
    let is_known = known.is_some_and(|card| card.texts == texts && card.store == name);
    match write_card(folder, sources, Card { texts: texts.to_owned(), store: name, ..Card::default() }) {
        // Complete indexes are of use to those who may only read them.
        Err(error) if is_known => {
            tracing::debug!("the use of {} was not noted: {error}", folder.display());
        }
        done => done?,
    }
    bytes_in(folder)
}

/// Describes the sources of a folder with a passage store, so that [`cached_indexes`] tells them. Nothing is removed, and an
/// existing description stays.
///
/// # Errors
/// [`Error::Io`] if the folder cannot be written.
pub(crate) fn note((store, texts): (&Path, &str), sources: &[PathBuf]) -> Result<()> {
    let folder = store.parent().unwrap_or(store);
    if read_card(folder)?.is_some() {
        return Ok(());
    }
    write_card(folder, sources, Card { texts: texts.to_owned(), store: name_of(store), ..Card::default() })
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A time in seconds since 1970; 0 if it is unknown.
fn seconds(time: io::Result<SystemTime>) -> u64 {
    let since = time.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs())
}

/// Writes a card with the sources, used now.
fn write_card(folder: &Path, sources: &[PathBuf], card: Card) -> Result<()> {
    let used = seconds(Ok(SystemTime::now()));
    let card = Card { sources: absolute(sources)?, used, ..card };
    Ok(jsonl::write_json(folder.join(CARD), &card)?)
}

fn read_card(folder: &Path) -> Result<Option<Card>> {
    let path = folder.join(CARD);
    if path.is_file() { Ok(Some(jsonl::read_json(path)?)) } else { Ok(None) }
}

impl CachedIndexes {
    /// Whether they are no indexes but the responses of endpoints.
    #[must_use]
    pub fn is_responses(&self) -> bool {
        self.name == RESPONSES
    }
}

/// The indexes of all sources in a cache and the responses of endpoints, by name. A cache that does not exist has none.
///
/// # Errors
/// [`Error::Io`] for a folder that cannot be read; [`Error::Kilt`] for a damaged description.
pub fn cached_indexes(cache: &Path) -> Result<Vec<CachedIndexes>> {
    let entries = match fs::read_dir(cache) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(cache, "read")(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let folder = entry.map_err(Error::io(cache, "read"))?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || !folder.is_dir() {
            continue;
        }
        // A build that was killed leaves a folder without a description.
        let (sources, used) = match read_card(&folder)? {
            Some(Card { sources, used, .. }) => (sources, used),
            None if name == RESPONSES && folder.join("CACHEDIR.TAG").is_file() => {
                (Vec::new(), seconds(fs::metadata(&folder).and_then(|about| about.modified())))
            }
            None if is_ours(&folder)? => (Vec::new(), 0),
            None => continue,
        };
        let (bytes, parts) = (bytes_in(&folder)?, parts(&folder)?);
        found.push(CachedIndexes { name, folder, sources, used, bytes, parts });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Whether a folder has nothing but stores, indexes and unfinished builds of them.
fn is_ours(folder: &Path) -> Result<bool> {
    for entry in fs::read_dir(folder).map_err(Error::io(folder, "read"))? {
        let name = entry.map_err(Error::io(folder, "read"))?.file_name();
        let name = name.to_string_lossy();
        if !is_part(name.trim_start_matches('.').split('.').next().unwrap_or_default()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the indexes of a set of sources, by the name of the folder. The sources stay. Returns what it removed.
///
/// # Errors
/// [`FileError::Argument`] for an unknown name, and for indexes that a process builds now; [`Error::Io`].
pub fn remove_cached(cache: &Path, name: &str) -> Result<CachedIndexes> {
    let found = cached(cache, name)?;
    if leftovers(&found.folder)?.iter().any(|leftover| leftover.at_work) {
        let message = format!("{}: a process is building an index there now", found.folder.display());
        return Err(FileError::Argument(message).into());
    }
    fs::remove_dir_all(&found.folder).map_err(Error::io(&found.folder, "remove"))?;
    Ok(found)
}

/// The indexes of a set of sources, by the name of the folder.
///
/// # Errors
/// [`FileError::Argument`] for an unknown name, with the known ones; those of [`cached_indexes`].
pub fn cached(cache: &Path, name: &str) -> Result<CachedIndexes> {
    let all = cached_indexes(cache)?;
    let names: Vec<String> = all.iter().map(|found| found.name.clone()).collect();
    all.into_iter().find(|found| found.name == name).ok_or_else(|| {
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let message =
            format!("expected the name of cached indexes in {} ({known}), found `{name}`", cache.display());
        FileError::Argument(message).into()
    })
}

/// The stores and indexes in a folder, by name.
fn parts(folder: &Path) -> Result<Vec<CachedPart>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(folder, "read"))? {
        let path = entry.map_err(Error::io(folder, "read"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && is_part(&name) {
            let bytes = bytes_in(&path)?;
            parts.push(CachedPart { name, bytes });
        }
    }
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(parts)
}

/// The size of all files below a folder. Files that another process removes meanwhile do not count.
fn bytes_in(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries.map_err(Error::io(folder, "read"))?,
    };
    for entry in entries {
        let entry = entry.map_err(Error::io(folder, "read"))?;
        match entry.metadata() {
            Ok(about) if about.is_dir() => sum += bytes_in(&entry.path())?,
            Ok(about) => sum += about.len(),
            Err(_) => {}
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(folder: &Path, part: &str, bytes: usize) -> PathBuf {
        let path = folder.join(part);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("text.bin"), vec![0; bytes]).unwrap();
        path
    }

    #[test]
    fn sizes_have_one_decimal() {
        let found = [0, 1023, 1024, 1536, 1 << 20, (1 << 30) - 1].map(size);
        assert_eq!(found, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1.0 GiB"]);
    }

    #[test]
    fn a_folder_is_named_by_the_sources() {
        let place = tempfile::tempdir().unwrap();
        let (cache, notes, other) =
            (place.path().join("cache"), place.path().join("my notes"), place.path().join("b"));
        fs::create_dir(&notes).unwrap();
        fs::create_dir(&other).unwrap();
        let one = folder_of(&cache, std::slice::from_ref(&notes)).unwrap();
        assert!(one.file_name().unwrap().to_str().unwrap().starts_with("my-notes-"), "{one:?}");
        assert_eq!(folder_of(&cache, &[place.path().join("b/../my notes")]).unwrap(), one);
        assert_ne!(folder_of(&cache, &[notes, other]).unwrap(), one);
        assert!(folder_of(&cache, &[place.path().join("none")]).is_err());
    }

    #[test]
    fn indexes_of_earlier_contents_are_removed_and_others_stay() {
        let place = tempfile::tempdir().unwrap();
        let (cache, source) = (place.path().join("cache"), vec![place.path().to_owned()]);
        let folder = folder_of(&cache, &source).unwrap();
        let key = |part: &str, digit: &str| format!("{part}-{}", digit.repeat(12));
        let (store, words) = (key("store", "0"), key("bm25", "0"));
        let kept = [filled(&folder, &store, 10), filled(&folder, &words, 5)];
        let dense = filled(&folder, &key("dense", "0"), 7);
        let keep_of = |kept: &[PathBuf], texts: &str, source: &[PathBuf]| {
            keep((&kept[0], texts), source, kept.iter().map(PathBuf::as_path)).unwrap()
        };
        let keep_these = |kept: &[PathBuf], texts: &str| keep_of(kept, texts, &source);
        assert!(keep_these(&kept, "a") > 22);
        // The vectors are not in use, but they are of the same contents.
        keep_these(&kept, "a");
        assert!(dense.is_dir());
        // Another name of the same folder, then other metadata. The store of a config stays.
        let other = filled(&folder, &key("store", "2"), 1);
        keep_of(&kept, "a", &[place.path().join(".")]);
        assert!(dense.is_dir() && other.is_dir() && kept.iter().all(|part| part.is_dir()));
        let later = [filled(&folder, &key("store", "3"), 1)];
        keep_these(&later, "a");
        assert!(dense.is_dir() && !kept[0].exists() && other.is_dir());
        let new = ["store", "bm25", "documents"].map(|part| filled(&folder, &key(part, "1"), 1));
        let read_before = filled(&folder, &key("documents", "0"), 1);
        fs::write(folder.join("mine.txt"), "a file of the user").unwrap();
        keep_these(&new, "b");
        assert!(!dense.exists() && !other.exists() && !later[0].exists() && !read_before.exists());
        assert!(!kept[1].exists() && new.iter().all(|part| part.is_dir()));
        assert!(folder.join("mine.txt").is_file());
        // An earlier version of the program had a store and pages for each name of a source.
        let old = ["store", "documents"].map(|part| filled(&folder, &key(part, "7"), 1));
        let card = format!(
            "{{\"sources\":[{:?}],\"texts\":\"b\",\"stores\":{{\"x\":\"y\"}},\"used\":1}}",
            place.path()
        );
        fs::write(folder.join(CARD), card).unwrap();
        keep_these(&new, "b");
        assert!(old.iter().all(|part| !part.exists()) && new.iter().all(|part| part.is_dir()));
    }

    #[test]
    fn indexes_are_listed_and_removed_by_name() {
        let place = tempfile::tempdir().unwrap();
        let (cache, source) = (place.path().join("cache"), vec![place.path().to_owned()]);
        assert!(cached_indexes(&cache).unwrap().is_empty());
        let folder = folder_of(&cache, &source).unwrap();
        let store = filled(&folder, &format!("store-{}", "0".repeat(12)), 2000);
        keep((&store, "a"), &source, std::iter::empty()).unwrap();
        let unfinished = cache.join("killed-1");
        fs::create_dir_all(unfinished.join(format!(".store-{}.building", "1".repeat(12)))).unwrap();
        fs::create_dir_all(cache.join("other/things")).unwrap();
        let found = cached_indexes(&cache).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        let own = found.iter().find(|found| !found.sources.is_empty()).unwrap();
        assert_eq!((own.parts.len(), own.parts[0].bytes), (1, 2000));
        assert!(own.bytes > 2000 && own.used > 1_600_000_000);
        let error = remove_cached(&cache, "none").unwrap_err();
        assert!(error.is_input() && error.to_string().contains(&own.name), "{error}");
        assert!(remove_cached(&cache, "other").is_err() && cache.join("other/things").is_dir());
        assert_eq!(remove_cached(&cache, &own.name).unwrap().name, own.name);
        assert!(!folder.exists() && place.path().is_dir());
    }
}
