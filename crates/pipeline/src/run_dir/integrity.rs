//! Verification of stores and indexes by their checksums.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;
use sporran_documents::Collection;
use sporran_kilt::{
    PassageStore,
    folder::{Leftover, leftovers},
    with_causes,
};
use sporran_retriever::{is_index, verify_index};

use crate::{Error, Result};

/// Prefixes of the folder names in `indexes`; 12 hexadecimal digits follow.
const KINDS: [&str; 7] = ["store", "documents", "bm25", "tfidf", "dense", "names", "titles"];

/// A verified store or index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The folder.
    pub path: PathBuf,
    /// `store`, `documents`, or the kind of the index: `bm25`, `tfidf`, `dense`, `aliases`, `titles`. From the folder's name if the
    /// header cannot be read.
    pub kind: String,
    /// The number of verified bytes; 0 if the verification failed.
    pub bytes: u64,
    /// The damage; `None` if all checksums match.
    pub damage: Option<String>,
}

/// The folder of an unfinished build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unfinished {
    /// The hidden folder.
    pub path: PathBuf,
    /// Whether a process is building there.
    pub at_work: bool,
    /// Whether the next build of the same index resumes it. Otherwise the next build removes it.
    pub goes_on: bool,
}

/// The result of [`verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Stores and indexes, sorted by path.
    pub verified: Vec<Checked>,
    /// Folders of unfinished builds.
    pub unfinished: Vec<Unfinished>,
}

impl Verification {
    /// The number of damaged stores and indexes.
    pub fn damaged(&self) -> usize {
        self.verified.iter().filter(|checked| checked.damage.is_some()).count()
    }
}

/// Verifies all files of the stores and indexes in (or at) `folders` by their checksums. Calls `each` with
/// each result. Does not follow links.
///
/// # Errors
/// [`sporran_kilt::Error::Argument`] for a missing folder, [`Error::Io`] for an unreadable one. Damage of a
/// store or an index is in the result.
pub fn verify(folders: &[PathBuf], each: &mut dyn FnMut(&Checked)) -> Result<Verification> {
    let mut found = Verification::default();
    for folder in folders {
        if !folder.is_dir() {
            let message = format!("{}: expected a folder to verify, found none", folder.display());
            return Err(sporran_kilt::Error::Argument(message).into());
        }
        below(folder, &mut found, each)?;
    }
    Ok(found)
}

fn below(folder: &Path, found: &mut Verification, each: &mut dyn FnMut(&Checked)) -> Result<()> {
    if let Some(checked) = check(folder) {
        each(&checked);
        found.verified.push(checked);
        return Ok(());
    }
    let unfinished = |Leftover { path, at_work, goes_on }| Unfinished { path, at_work, goes_on };
    found.unfinished.extend(leftovers(folder)?.into_iter().map(unfinished));
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(folder, "open"))? {
        let entry = entry.map_err(Error::io(folder, "read"))?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders.push(entry.path());
        }
    }
    folders.sort();
    folders.iter().try_for_each(|folder| below(folder, found, each))
}

/// Verifies a store or an index; `None` for other folders.
fn check(folder: &Path) -> Option<Checked> {
    let named = named(folder);
    let (kind, result) = if folder.join("store.json").is_file() || named == Some("store") {
        (
            "store".to_owned(),
            PassageStore::open_verified(folder).map(|store| store.bytes()).map_err(Error::from),
        )
    } else if folder.join("documents.json").is_file() || named == Some("documents") {
        let verified = Collection::open(folder).and_then(|collection| collection.verify());
        ("documents".to_owned(), verified.map_err(Error::from))
    } else if is_index(folder) || named.is_some() {
        match verify_index(folder) {
            Ok(index) => (index.kind, Ok(index.bytes)),
            Err(error) => (named.unwrap_or("index").to_owned(), Err(Error::from(error))),
        }
    } else {
        return None;
    };
    let (bytes, damage) = match result {
        Ok(bytes) => (bytes, None),
        Err(error) => (0, Some(with_causes(&error))),
    };
    Some(Checked { path: folder.to_owned(), kind, bytes, damage })
}

/// The kind of a folder by its name, such as `bm25` of `bm25-94dfe0f72d69`.
fn named(folder: &Path) -> Option<&'static str> {
    let (kind, key) = folder.file_name()?.to_str()?.split_once('-')?;
    let is_key = key.len() == 12 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    KINDS.into_iter().find(|known| is_key && *known == kind)
}

/// Whether a folder of this name is a store or an index.
pub(crate) fn is_part(name: &str) -> bool {
    named(Path::new(name)).is_some()
}
