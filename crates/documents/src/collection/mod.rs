//! The pages of a source in one file, which a later collection of the same source takes over for unchanged files.
//!
//! | file of the folder | content |
//! |---|---|
//! | `documents.json` | version, hashes, summary |
//! | `pages.jsonl.zst` | the pages as a knowledge source; each file of the source is a frame of zstd |
//! | `files.jsonl` | a line for each file of the source: its hash, its frame, its problems |

mod earlier;
mod output;
mod pages;

use std::{
    fs,
    path::{Path, PathBuf},
};

use rayon::prelude::*;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use sporran_kilt::{
    Error as FileError,
    folder::{Building, Place},
    jsonl,
};

use self::{
    earlier::Earlier,
    output::{Out, failed},
    pages::{Part, Seen, large},
};
use crate::{Error, Listing, Options, Problem, Result, SourceFile, Summary, listing::VERSION};

const FORMAT: &str = "sporran-documents";
const HEADER: &str = "documents.json";
const PAGES: &str = "pages.jsonl.zst";
const FILES: &str = "files.jsonl";
/// The prefix of the folders of collections.
const KIND: &str = "documents";
/// The largest file that is read together with others, in bytes.
const SMALL: u64 = 8 << 20;
/// The number and the bytes of the files that are read together.
const BATCH: (usize, u64) = (512, 64 << 20);

/// The progress of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of files that were read or taken over.
    pub files: u64,
    /// The number of files.
    pub of: u64,
    /// The number of pages.
    pub pages: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    /// The hash of the options.
    origin: String,
    /// The hash of options and contents.
    content: String,
    summary: Summary,
    bytes: u64,
    pages_blake3: String,
    files_blake3: String,
}

/// A file of the source in a collection.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    file: String,
    blake3: String,
    /// The first byte and the number of bytes of its frame.
    start: u64,
    length: u64,
    pages: u64,
    /// Whether its records bring their own ids.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    own_ids: bool,
    /// Whether the file has to be read again, because its pages depend on other files, or were not read for a reason that may
    /// pass.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    again: bool,
    /// Whether the file changed after it was listed, so that nothing was read.
    #[serde(skip)]
    has_changed: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    problems: Vec<Problem>,
}

/// The pages of a source.
#[derive(Clone, Debug)]
pub struct Collection {
    folder: PathBuf,
    header: Header,
}

impl Collection {
    /// Opens the collection of a listing in the folder `indexes`, or builds it. Files that an earlier collection of the same
    /// source has are taken over if their hashes are the same. That collection is removed. A file that changes meanwhile is a
    /// problem; the next call reads it again.
    ///
    /// # Errors
    /// [`Error::Nothing`] if there is no page, [`Error::Strict`] if `strict` is set and a file cannot be read, and errors of
    /// writing. Then no folder remains.
    pub fn open_or_build(
        listing: &Listing,
        options: &Options,
        strict: bool,
        indexes: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        let content = listing.content();
        let folder = indexes.join(format!("{KIND}-{}", &content[..12]));
        let place = match Place::vacant(&folder)? {
            Some(place) => place,
            None => {
                let mut collection = Self::open(&folder)?;
                if collection.header.content == content {
                    collection.header.summary.written.clone_from(&listing.written);
                    collection.check(strict, options)?;
                    return Ok(collection);
                }
                // A file changed while it was built, and has the listed content again.
                Place::from(&folder)
            }
        };
        let earlier = Self::earlier(indexes, &listing.origin);
        let built = Self::build(listing, options, strict, place, &earlier, progress)?;
        for old in earlier.iter().filter(|old| old.folder != built.folder) {
            // A process that still reads it had files that have changed.
            if let Err(error) = fs::remove_dir_all(&old.folder) {
                tracing::warn!("could not remove {}: {error}", old.folder.display());
            }
        }
        built.check(strict, options)?;
        Ok(built)
    }

    /// Opens a folder.
    ///
    /// # Errors
    /// [`FileError::Store`] for a folder of another format or version, and errors of reading.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(HEADER);
        let header: Header = jsonl::read_json(&path)?;
        if header.format != FORMAT || header.version != VERSION {
            let message = format!(
                "expected the pages of documents in version {VERSION}, found `{}` {}; delete the folder, and the next run builds it again",
                header.format, header.version
            );
            return Err(FileError::store(&path, message).into());
        }
        let pages = folder.join(PAGES);
        let found = fs::metadata(&pages).map_err(|error| FileError::io(&pages, "open", error))?.len();
        if found != header.bytes {
            let message = format!(
                "expected {} bytes, found {found}: the file is damaged; delete the folder, and the next run builds it again",
                header.bytes
            );
            return Err(FileError::store(&pages, message).into());
        }
        Ok(Self { folder: folder.to_owned(), header })
    }

    /// Reads the files and compares their hashes. Gives their bytes.
    ///
    /// # Errors
    /// [`FileError::Checksum`] for a damaged file.
    pub fn verify(&self) -> Result<u64> {
        let mut bytes = 0;
        for (name, expected) in [(PAGES, &self.header.pages_blake3), (FILES, &self.header.files_blake3)] {
            let path = self.folder.join(name);
            let file = fs::File::open(&path).map_err(|error| FileError::io(&path, "open", error))?;
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(file).map_err(|error| FileError::io(&path, "read", error))?;
            bytes += hasher.count();
            let found = hasher.finalize().to_hex().to_string();
            if found != *expected {
                let (expected, folder) = (expected.clone(), self.folder.clone());
                return Err(FileError::Checksum { path, expected, found, folder }.into());
            }
        }
        Ok(bytes)
    }

    /// The file of the pages, a knowledge source.
    pub fn pages(&self) -> PathBuf {
        self.folder.join(PAGES)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The hash of the options and of the contents of all files; those that changed while they were read have none.
    pub fn content(&self) -> &str {
        &self.header.content
    }

    /// What was read when the collection was built.
    pub fn summary(&self) -> &Summary {
        &self.header.summary
    }

    fn check(&self, strict: bool, options: &Options) -> Result<()> {
        let summary = self.summary();
        if strict && summary.incomplete() > 0 {
            return Err(Error::Strict { summary: Box::new(summary.clone()) });
        }
        if summary.pages == 0 {
            return Err(Error::Nothing { paths: options.paths.clone(), summary: Box::new(summary.clone()) });
        }
        Ok(())
    }

    /// The collections of the same options.
    fn earlier(indexes: &Path, origin: &str) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(indexes) else { return Vec::new() };
        let folders = entries.flatten().filter(|entry| {
            entry.file_name().to_str().is_some_and(|name| name.starts_with(KIND))
                && entry.path().join(HEADER).is_file()
        });
        let mut found: Vec<Self> = folders
            .filter_map(|entry| Self::open(&entry.path()).ok())
            .filter(|collection| collection.header.origin == origin)
            .collect();
        found.sort_by(|a, b| a.folder.cmp(&b.folder));
        found
    }

    /// The entries of its files.
    fn entries(&self) -> Result<Vec<Entry>> {
        Ok(jsonl::open(self.folder.join(FILES))?.records().collect::<sporran_kilt::Result<_>>()?)
    }

    fn build(
        listing: &Listing,
        options: &Options,
        strict: bool,
        place: Place,
        earlier: &[Self],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        let building = Building::create(place, |folder| folder.join(HEADER).is_file())?;
        let old = Earlier::open(earlier)?;
        let mut out = Out::create(&building.path(PAGES))?;
        let mut entries: Vec<Entry> = Vec::with_capacity(listing.files.len());
        let (problems, written) = (listing.problems.clone(), listing.written.clone());
        let mut summary = Summary { problems, written, ..Summary::default() };
        let mut seen = Seen::default();
        let mut rest = &listing.files[..];
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(batch(rest));
            rest = after;
            if let [file] = batch
                && file.bytes > SMALL
            {
                let entry = match old.whole(file, &mut out, &mut seen)? {
                    Some(entry) => {
                        summary.unchanged += 1;
                        entry
                    }
                    None => large(file, options, &mut out, &mut seen)?,
                };
                entries.push(entry);
            } else {
                let parts: Vec<Result<Part>> = batch
                    .par_iter()
                    .map(|file| match old.part(file)? {
                        Some(part) => Ok(part),
                        None => Part::read(file, options),
                    })
                    .collect();
                for (part, file) in parts.into_iter().zip(batch) {
                    let (entry, is_old) = part?.write(file, options, &mut out, &mut seen)?;
                    summary.unchanged += u64::from(is_old);
                    entries.push(entry);
                }
            }
            for entry in &entries[summary.files as usize..] {
                summary.pages += entry.pages;
                summary.problems.extend(entry.problems.iter().cloned());
            }
            summary.files = entries.len() as u64;
            progress(Progress { files: summary.files, of: listing.files.len() as u64, pages: summary.pages });
        }
        let listed: FxHashSet<&str> = listing.files.iter().map(|file| file.file.as_str()).collect();
        summary.removed = old.entries.keys().filter(|file| !listed.contains(file.as_str())).count() as u64;
        summary.files = entries.iter().filter(|entry| entry.pages > 0).count() as u64;
        summary.problems.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        if strict && summary.incomplete() > 0 {
            return Err(Error::Strict { summary: Box::new(summary) });
        }
        if summary.pages == 0 {
            return Err(Error::Nothing { paths: options.paths.clone(), summary: Box::new(summary) });
        }
        let (bytes, pages_blake3) = out.finish()?;
        let mut lines = Vec::new();
        for entry in &entries {
            serde_json::to_writer(&mut lines, entry)
                .map_err(|error| failed(&building.path(FILES))(error.into()))?;
            lines.push(b'\n');
        }
        jsonl::write(building.path(FILES), &lines)?;
        let changed = entries.iter().enumerate().filter(|(_, entry)| entry.has_changed).map(|(at, _)| at);
        let content = listing.content_without(&changed.collect::<Vec<_>>());
        let header = Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            origin: listing.origin.clone(),
            content,
            summary,
            bytes,
            pages_blake3,
            files_blake3: blake3::hash(&lines).to_hex().to_string(),
        };
        jsonl::write_json(building.path(HEADER), &header)?;
        let folder = building.finish()?;
        Ok(Self { folder, header })
    }
}

/// The number of files of the next batch. A large file is alone.
fn batch(files: &[SourceFile]) -> usize {
    let mut bytes = 0;
    let fits = |file: &&SourceFile| {
        bytes += file.bytes;
        file.bytes <= SMALL && bytes <= BATCH.1
    };
    files.iter().take(BATCH.0).take_while(fits).count().max(1)
}
