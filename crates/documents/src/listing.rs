//! The files of a source, with their hashes.

use std::{
    fs,
    io::{BufRead, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use ignore::{
    WalkBuilder,
    gitignore::{Gitignore, GitignoreBuilder},
};
use rayon::prelude::*;
use rustc_hash::FxHashSet;
use sporran_kilt::{hash_json, jsonl};

use crate::{Error, Options, Problem, Result, Severity, written::is_written};

/// The version of what readers make of a file, a part of the keys of collections. A change of the pages of a format needs a
/// new version.
pub(crate) const VERSION: u32 = 6;

/// A file of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The path to open.
    pub path: PathBuf,
    /// The path as provenance shows it: that of the source with the file's path in it.
    pub file: String,
    /// The path in its folder, which filters compare.
    pub source: String,
    /// The id of its page, and the first part of the ids of its records.
    pub id: String,
    /// The number of bytes.
    pub bytes: u64,
    /// The BLAKE3 hash of its content, in hexadecimal.
    pub blake3: String,
    modified: Option<SystemTime>,
}

impl SourceFile {
    /// The file's name without its endings, with blanks for underscores.
    pub(crate) fn stem(&self) -> String {
        let name = self.source.rsplit('/').next().unwrap_or_default();
        let name =
            [".gz", ".zst", ".zstd"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem });
        stem.replace('_', " ")
    }

    /// Whether length and time are still those of the listing.
    pub(crate) fn is_unchanged(&self) -> bool {
        let found = fs::metadata(&self.path);
        found.is_ok_and(|found| found.len() == self.bytes && found.modified().ok() == self.modified)
    }

    /// A file without content, for tests.
    #[cfg(test)]
    pub(crate) fn named(file: &str) -> Self {
        Self {
            path: file.into(),
            file: file.into(),
            source: file.into(),
            id: file.into(),
            bytes: 0,
            blake3: String::new(),
            modified: None,
        }
    }
}

/// The files of a source.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The files, in the order of the paths of the source and of their names.
    pub files: Vec<SourceFile>,
    /// Files and folders that cannot be read.
    pub problems: Vec<Problem>,
    /// The folders that this program wrote, such as those of runs and of indexes. They are left out.
    pub written: Vec<String>,
    /// The hash of the options.
    pub(crate) origin: String,
}

impl Listing {
    /// The hash of the options and of the contents of all files. Two listings with the same hash have the same pages.
    pub fn content(&self) -> String {
        self.content_without(&[])
    }

    /// [`content`](Self::content), where the files of these indices changed after they were listed, so that their pages are
    /// missing.
    pub(crate) fn content_without(&self, changed: &[usize]) -> String {
        let hash = |(at, file): (usize, &'_ SourceFile)| match changed.binary_search(&at) {
            Ok(_) => "changed".to_owned(),
            Err(_) => file.blake3.clone(),
        };
        let hashes = self.files.iter().enumerate().map(hash);
        let files: Vec<_> = self.files.iter().map(|file| &file.file).zip(hashes).collect();
        hash_json(&(&self.origin, files, &self.problems))
    }
}

/// Whether a path is a single file in KILT's layout, which a store reads by itself: JSON lines whose first record has
/// KILT's fields, or an empty file of JSON lines.
pub fn is_single_source(path: &Path) -> bool {
    let Ok(true) = fs::metadata(path).map(|about| about.is_file()) else { return false };
    // The reading of a source tells which of its files cannot be read.
    let Ok((mut input, _)) = jsonl::open_bytes(path) else { return false };
    let head = input.fill_buf().map(<[u8]>::to_vec).unwrap_or_default();
    let name = path.to_string_lossy().to_ascii_lowercase();
    let name = [".gz", ".zst", ".zstd"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
    let is_json = [".jsonl", ".json", ".ndjson"].iter().any(|ending| name.ends_with(ending));
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head).trim_ascii_start();
    let has = |word: &[u8]| text.windows(word.len()).any(|found| found == word);
    if !text.starts_with(b"{") {
        // A list of objects is read; the reader of KILT's layout reports what is no JSON.
        return is_json && !text.starts_with(b"[");
    }
    let mut line = Vec::new();
    let read = input.take(1 << 26).read_until(b'\n', &mut line);
    let record = read.ok().and_then(|_| {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
        jsonl::parse_free::<serde_json::Map<String, serde_json::Value>>(std::str::from_utf8(line).ok()?).ok()
    });
    match record {
        Some(record) => record.contains_key("wikipedia_id") || record.contains_key("wikipedia_title"),
        // The reading of documents tells which records it cannot read, and reads the others.
        None => has(b"\"wikipedia_id\""),
    }
}

/// A path that was found, before it is read.
struct Found {
    path: PathBuf,
    file: String,
    source: String,
    id: String,
}

/// Finds the files of a source and hashes them. `progress` gets the number of hashed files.
///
/// Folders are searched with their subfolders; links are followed. Files whose names start with a dot are left out, and so
/// are subfolders that their programs tag as caches, and those that this program wrote.
///
/// # Errors
/// [`Error::Pattern`] for a wrong glob, and [`sporran_kilt::Error::Io`] for a path of the source that does not exist.
/// Files and folders that cannot be read are problems.
pub fn list(options: &Options, progress: &mut dyn FnMut(u64)) -> Result<Listing> {
    let mut listing = Listing { origin: hash_json(&(VERSION, options)), ..Listing::default() };
    let (include, exclude) = (globs("include", &options.include)?, globs("exclude", &options.exclude)?);
    let skip: Vec<PathBuf> = options.skip.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let is_single = options.paths.len() == 1;
    let mut has_links = false;
    let mut found: Vec<Found> = Vec::new();
    for root in &options.paths {
        let about = fs::metadata(root).map_err(|error| sporran_kilt::Error::io(root, "open", error))?;
        let shown = slashes(root);
        if !about.is_dir() {
            let name = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let id = if is_single { name.clone() } else { shown.clone() };
            found.push(Found { path: root.clone(), file: shown, source: name, id });
            continue;
        }
        let mut walk = WalkBuilder::new(root);
        walk.standard_filters(false).hidden(true).follow_links(true).parents(false);
        walk.sort_by_file_name(std::ffi::OsStr::cmp);
        if !options.ignore_file.is_empty() {
            walk.add_custom_ignore_filename(&options.ignore_file);
        }
        let (start, skip, exclude_too) = (root.clone(), skip.clone(), exclude.clone());
        let written: Arc<Mutex<Vec<String>>> = Arc::default();
        let left_out = Arc::clone(&written);
        walk.filter_entry(move |entry| {
            let inner = entry.path().strip_prefix(&start).unwrap_or(entry.path());
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            if inner.as_os_str().is_empty() {
                return true;
            }
            if exclude_too.matched(inner, is_folder).is_ignore() || (is_folder && is_cache(entry.path())) {
                return false;
            }
            let is_skipped = is_folder
                && !skip.is_empty()
                && entry.path().canonicalize().is_ok_and(|path| skip.contains(&path));
            if is_skipped || (is_folder && is_written(entry.path())) {
                left_out.lock().unwrap_or_else(PoisonError::into_inner).push(slashes(entry.path()));
                return false;
            }
            true
        });
        for entry in walk.build() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    listing.problems.push(problem(&error, root));
                    continue;
                }
            };
            if let Some(error) = entry.error() {
                listing.problems.push(problem(error, root));
            }
            let Some(kind) = entry.file_type() else { continue };
            has_links |= entry.path_is_symlink();
            if kind.is_dir() {
                continue;
            }
            let inner = entry.path().strip_prefix(root).unwrap_or(entry.path());
            if !options.include.is_empty() && !include.matched_path_or_any_parents(inner, false).is_ignore() {
                continue;
            }
            let source = slashes(inner);
            let file = slashes(entry.path());
            if !kind.is_file() {
                let message = "expected a file, found a pipe, a socket or a device".to_owned();
                listing.problems.push(Problem { file, line: None, severity: Severity::Unread, message });
                continue;
            }
            let id = if is_single { source.clone() } else { file.clone() };
            found.push(Found { path: entry.into_path(), file, source, id });
        }
        listing.written.append(&mut written.lock().unwrap_or_else(PoisonError::into_inner));
    }
    if !is_single || has_links {
        once(&mut found);
    }
    // In parts, for the progress.
    for part in found.chunks(1024) {
        let hashed: Vec<Result<SourceFile, Problem>> = part.par_iter().map(hashed).collect();
        for file in hashed {
            match file {
                Ok(file) => listing.files.push(file),
                Err(problem) => listing.problems.push(problem),
            }
        }
        progress(listing.files.len() as u64);
    }
    listing.problems.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(listing)
}

/// Keeps each file once: by its own path if a path of the source has it without a link, else by the first one.
fn once(found: &mut Vec<Found>) {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let places: Vec<(PathBuf, bool)> = found
        .iter()
        .map(|file| {
            let place = real(&file.path);
            // A folder of the source may itself be a link.
            let root = file.path.ancestors().nth(Path::new(&file.source).components().count()).map(real);
            let is_direct = root.is_some_and(|root| root.join(&file.source) == place);
            (place, is_direct)
        })
        .collect();
    let direct: FxHashSet<&Path> =
        places.iter().filter(|(_, is_direct)| *is_direct).map(|(place, _)| place.as_path()).collect();
    let mut seen: FxHashSet<&Path> = FxHashSet::default();
    let mut kept = places
        .iter()
        .map(|(place, is_direct)| (*is_direct || !direct.contains(place.as_path())) && seen.insert(place));
    found.retain(|_| kept.next().unwrap_or(true));
}

/// Whether a folder is the cache of a program: it has a file `CACHEDIR.TAG` with the signature of
/// <https://bford.info/cachedir/>.
fn is_cache(folder: &Path) -> bool {
    const SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
    let mut head = Vec::new();
    let tag = fs::File::open(folder.join("CACHEDIR.TAG"));
    let read = tag.and_then(|tag| tag.take(SIGNATURE.len() as u64).read_to_end(&mut head));
    read.is_ok() && head == SIGNATURE
}

/// A path with slashes.
fn slashes(path: &Path) -> String {
    let text = path.to_string_lossy();
    if std::path::MAIN_SEPARATOR == '/' {
        text.into_owned()
    } else {
        text.replace(std::path::MAIN_SEPARATOR, "/")
    }
}

fn globs(key: &'static str, patterns: &[String]) -> Result<Gitignore> {
    let mut builder = GitignoreBuilder::new("");
    for pattern in patterns {
        let wrong = |error: ignore::Error| Error::Pattern {
            key,
            pattern: pattern.clone(),
            message: error.to_string(),
        };
        builder.add_line(None, pattern).map_err(wrong)?;
    }
    builder.build().map_err(|error| Error::Pattern {
        key,
        pattern: String::new(),
        message: error.to_string(),
    })
}

/// The patterns of options that are no globs, with the keys of the options.
pub fn wrong_globs(options: &Options) -> Vec<(&'static str, String)> {
    let lists = [("include", &options.include), ("exclude", &options.exclude)];
    let wrong = lists.into_iter().filter_map(|(key, patterns)| match globs(key, patterns) {
        Err(Error::Pattern { key, pattern, message }) => {
            Some((key, format!("expected a glob, found `{pattern}`: {message}")))
        }
        _ => None,
    });
    wrong.collect()
}

/// The hash of a file.
fn hashed(found: &Found) -> Result<SourceFile, Problem> {
    let unread = |error: std::io::Error| Problem {
        file: found.file.clone(),
        line: None,
        severity: Severity::Unread,
        message: format!("reading failed: {error}"),
    };
    let file = fs::File::open(&found.path).map_err(unread)?;
    let about = file.metadata().map_err(unread)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(&file).map_err(unread)?;
    Ok(SourceFile {
        path: found.path.clone(),
        file: found.file.clone(),
        source: found.source.clone(),
        id: found.id.clone(),
        bytes: about.len(),
        blake3: hasher.finalize().to_hex().to_string(),
        modified: about.modified().ok(),
    })
}

/// A failure of the search.
fn problem(error: &ignore::Error, root: &Path) -> Problem {
    let (file, severity, message) = match error {
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
            return problem(err, root);
        }
        ignore::Error::Loop { ancestor, child } => {
            let message = format!("is a link to {}, in which it is; it was not followed", ancestor.display());
            (child.as_path(), Severity::Note, message)
        }
        ignore::Error::WithPath { path, err } => {
            let inner = problem(err, path);
            (path.as_path(), inner.severity, inner.message)
        }
        ignore::Error::Io(error) if error.kind() == std::io::ErrorKind::NotFound && root.is_symlink() => {
            (root, Severity::Unread, "is a link to a file that does not exist".to_owned())
        }
        ignore::Error::Io(error) => {
            let cause = error.get_ref().and_then(|inner| inner.source());
            let message = cause.map_or_else(|| error.to_string(), ToString::to_string);
            (root, Severity::Unread, format!("reading failed: {message}"))
        }
        other => (root, Severity::Unread, format!("reading failed: {other}")),
    };
    Problem { file: slashes(file), line: None, severity, message }
}
