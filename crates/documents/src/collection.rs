//! The pages of a source in one file, which a later collection of the same source takes over for unchanged files.
//!
//! | file of the folder | content |
//! |---|---|
//! | `documents.json` | version, hashes, summary |
//! | `pages.jsonl.zst` | the pages as a knowledge source; each file of the source is a frame of zstd |
//! | `files.jsonl` | a line for each file of the source: its hash, its frame, its problems |

use std::{
    fs,
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use sporran_kilt::{
    Error as FileError, counted,
    folder::{Building, Place},
    jsonl,
};

use crate::{
    Error, Listing, Options, Problem, Result, Severity, SourceFile, Summary,
    listing::VERSION,
    read::{Unread, read},
};

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
const LEVEL: i32 = 1;

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
        let mut seen: FxHashSet<u128> = FxHashSet::default();
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

fn failed(path: &Path) -> impl Fn(io::Error) -> FileError + use<> {
    let path = path.to_owned();
    move |error| FileError::io(&path, "write", error)
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

/// The file of pages while it is written.
struct Out {
    path: PathBuf,
    file: BufWriter<fs::File>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Out {
    fn create(path: &Path) -> Result<Self> {
        let file = fs::File::create(path).map_err(failed(path))?;
        let file = BufWriter::with_capacity(1 << 20, file);
        Ok(Self { path: path.to_owned(), file, hasher: blake3::Hasher::new(), bytes: 0 })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.write_all(bytes).map_err(failed(&self.path))?)
    }

    /// Removes what was written after the first `bytes` bytes, whose hash is `hasher`.
    fn roll_back(&mut self, bytes: u64, hasher: blake3::Hasher) -> Result<()> {
        let file = &mut self.file;
        let cut = file.flush().and_then(|()| file.get_ref().set_len(bytes));
        cut.and_then(|()| file.seek(SeekFrom::Start(bytes))).map_err(failed(&self.path))?;
        (self.bytes, self.hasher) = (bytes, hasher);
        Ok(())
    }

    /// The length and the hash.
    fn finish(mut self) -> Result<(u64, String)> {
        let written = self.file.flush().and_then(|()| self.file.get_ref().sync_data());
        written.map_err(failed(&self.path))?;
        Ok((self.bytes, self.hasher.finalize().to_hex().to_string()))
    }
}

/// The hash by which ids are compared.
fn id_hash(id: &str) -> u128 {
    let hash = blake3::hash(id.trim().as_bytes());
    let bytes: &[u8; 16] = hash.as_bytes().first_chunk().unwrap_or(&[0; 16]);
    u128::from_le_bytes(*bytes)
}

/// The pages of a small file.
struct Part {
    /// The pages as lines; empty if they are taken over.
    lines: Vec<u8>,
    /// The end of each line.
    ends: Vec<usize>,
    /// The hashes of the ids; none for ids of numbered records, which no other file has.
    ids: Vec<Option<u128>>,
    frame: Vec<u8>,
    entry: Entry,
    is_old: bool,
}

impl Part {
    fn read(file: &SourceFile, options: &Options) -> Result<Self> {
        let (mut lines, mut ends, mut ids, mut own_ids) = (Vec::new(), Vec::new(), Vec::new(), false);
        let unread = read(file, options, &mut |page| {
            serde_json::to_writer(&mut lines, &page.page)
                .map_err(|error| failed(&file.path)(error.into()))?;
            lines.push(b'\n');
            ends.push(lines.len());
            let id = page.page.wikipedia_id.text();
            ids.push((page.has_own_id || *id == file.id).then(|| id_hash(&id)));
            own_ids |= page.has_own_id;
            Ok(())
        })?;
        if unread.has_changed {
            (lines, ends, ids, own_ids) = (Vec::new(), Vec::new(), Vec::new(), false);
        }
        let frame = if lines.is_empty() { Vec::new() } else { compressed(&lines, file)? };
        let entry = Entry {
            file: file.file.clone(),
            blake3: file.blake3.clone(),
            start: 0,
            length: 0,
            pages: ends.len() as u64,
            own_ids,
            again: unread.is_transient,
            has_changed: unread.has_changed,
            problems: unread.problems,
        };
        Ok(Self { lines, ends, ids, frame, entry, is_old: false })
    }

    /// Writes the pages, without those whose id an earlier file has.
    fn write(
        self,
        file: &SourceFile,
        options: &Options,
        out: &mut Out,
        seen: &mut FxHashSet<u128>,
    ) -> Result<(Entry, bool)> {
        let mut within = FxHashSet::default();
        let is_new = |id: &u128, within: &mut FxHashSet<u128>| !seen.contains(id) && within.insert(*id);
        let kept: Vec<bool> =
            self.ids.iter().map(|id| id.as_ref().is_none_or(|id| is_new(id, &mut within))).collect();
        let doubled = kept.iter().filter(|&&kept| !kept).count();
        if doubled > 0 && self.is_old {
            return Self::read(file, options)?.write(file, options, out, seen);
        }
        let Self { lines, ends, mut frame, mut entry, is_old, .. } = self;
        if doubled > 0 {
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let lines: Vec<u8> = starts
                .zip(&ends)
                .zip(&kept)
                .filter(|(_, kept)| **kept)
                .flat_map(|((start, &end), _)| lines[start..end].iter().copied())
                .collect();
            frame = if lines.is_empty() { Vec::new() } else { compressed(&lines, file)? };
            entry.pages -= doubled as u64;
            entry.again = true;
            entry.problems.push(doubled_ids(file, doubled as u64));
        }
        seen.extend(within);
        (entry.start, entry.length) = (out.bytes, frame.len() as u64);
        out.put(&frame)?;
        Ok((entry, is_old))
    }
}

fn compressed(lines: &[u8], file: &SourceFile) -> Result<Vec<u8>> {
    Ok(zstd::encode_all(lines, LEVEL).map_err(failed(&file.path))?)
}

fn doubled_ids(file: &SourceFile, count: u64) -> Problem {
    let (have, were) = if count == 1 { ("has", "it was") } else { ("have", "they were") };
    let records = counted(count, "record");
    let message = format!("{records} {have} an id that an earlier record has; {were} not read");
    Problem { file: file.file.clone(), line: None, severity: Severity::Partial, message }
}

/// Reads a large file page by page.
fn large(file: &SourceFile, options: &Options, out: &mut Out, seen: &mut FxHashSet<u128>) -> Result<Entry> {
    let (start, hasher, path) = (out.bytes, out.hasher.clone(), out.path.clone());
    let mut encoder = zstd::Encoder::new(&mut *out, LEVEL).map_err(failed(&path))?;
    let (mut pages, mut doubled, mut own_ids) = (0, 0, false);
    let (mut line, mut within) = (Vec::new(), FxHashSet::default());
    let unread = read(file, options, &mut |page| {
        own_ids |= page.has_own_id;
        let id = page.has_own_id.then(|| id_hash(&page.page.wikipedia_id.text()));
        if id.is_some_and(|id| seen.contains(&id) || !within.insert(id)) {
            doubled += 1;
            return Ok(());
        }
        pages += 1;
        line.clear();
        serde_json::to_writer(&mut line, &page.page).map_err(|error| failed(&path)(error.into()))?;
        line.push(b'\n');
        encoder.write_all(&line).map_err(failed(&path))
    })?;
    encoder.finish().map_err(failed(&path))?;
    let Unread { mut problems, is_transient, has_changed } = unread;
    if has_changed {
        out.roll_back(start, hasher)?;
        (pages, doubled, own_ids) = (0, 0, false);
    } else {
        seen.extend(within);
    }
    if doubled > 0 {
        problems.push(doubled_ids(file, doubled));
    }
    Ok(Entry {
        file: file.file.clone(),
        blake3: file.blake3.clone(),
        start,
        length: out.bytes - start,
        pages,
        own_ids,
        again: doubled > 0 || is_transient,
        has_changed,
        problems,
    })
}

/// The pages of the earlier collection.
struct Earlier {
    entries: FxHashMap<String, Entry>,
    path: PathBuf,
    pages: Option<fs::File>,
}

impl Earlier {
    fn open(earlier: &[Collection]) -> Result<Self> {
        let mut found = Self { entries: FxHashMap::default(), path: PathBuf::new(), pages: None };
        // There is one, unless a build was killed before it removed the other.
        if let Some(collection) = earlier.last()
            && collection.verify().is_ok()
        {
            found.path = collection.pages();
            found.pages =
                Some(fs::File::open(&found.path).map_err(|error| FileError::io(&found.path, "open", error))?);
            found.entries =
                collection.entries()?.into_iter().map(|entry| (entry.file.clone(), entry)).collect();
        }
        Ok(found)
    }

    /// The entry of a file with the same content.
    fn entry(&self, file: &SourceFile) -> Option<&Entry> {
        self.entries.get(&file.file).filter(|entry| entry.blake3 == file.blake3 && !entry.again)
    }

    fn frame(&self, entry: &Entry) -> Result<impl Read + use<>> {
        let failed = |error| FileError::io(&self.path, "read", error);
        // A further opening has its own position.
        let mut file = fs::File::open(&self.path).map_err(failed)?;
        file.seek(SeekFrom::Start(entry.start)).map_err(failed)?;
        Ok(file.take(entry.length))
    }

    /// The hashes of the ids of an entry.
    fn ids(&self, entry: &Entry, file: &SourceFile, frame: impl Read) -> Result<Vec<u128>> {
        if !entry.own_ids {
            return Ok(if entry.pages == 1 { vec![id_hash(&file.id)] } else { Vec::new() });
        }
        #[derive(Deserialize)]
        struct Named {
            wikipedia_id: sporran_kilt::Id,
        }
        let input = jsonl::InputFile::new(&self.path);
        let failed = |error| FileError::io(&self.path, "read", error);
        let lines = io::BufReader::new(zstd::Decoder::new(frame).map_err(failed)?);
        let ids = io::BufRead::lines(lines).enumerate().map(|(at, line)| {
            let line = line.map_err(failed)?;
            let named: Named = jsonl::parse(&input, at as u64 + 1, line.as_bytes())?;
            Ok(id_hash(&named.wikipedia_id.text()))
        });
        ids.collect()
    }

    /// The pages of a small file.
    fn part(&self, file: &SourceFile) -> Result<Option<Part>> {
        let (Some(entry), Some(pages)) = (self.entry(file), &self.pages) else { return Ok(None) };
        let mut frame = vec![0; entry.length as usize];
        let failed = |error| FileError::io(&self.path, "read", error);
        #[cfg(unix)]
        std::os::unix::fs::FileExt::read_exact_at(pages, &mut frame, entry.start).map_err(failed)?;
        #[cfg(not(unix))]
        {
            let _ = pages;
            self.frame(entry)?.read_exact(&mut frame).map_err(failed)?;
        }
        let ids = self.ids(entry, file, &frame[..])?.into_iter().map(Some).collect();
        Ok(Some(Part { lines: Vec::new(), ends: Vec::new(), ids, frame, entry: entry.clone(), is_old: true }))
    }

    /// Copies the pages of a large file.
    fn whole(&self, file: &SourceFile, out: &mut Out, seen: &mut FxHashSet<u128>) -> Result<Option<Entry>> {
        let Some(entry) = self.entry(file) else { return Ok(None) };
        let ids = self.ids(entry, file, self.frame(entry)?)?;
        if ids.iter().any(|id| seen.contains(id)) {
            return Ok(None);
        }
        seen.extend(ids);
        let copy = Entry { start: out.bytes, ..entry.clone() };
        io::copy(&mut self.frame(entry)?, out).map_err(failed(&out.path))?;
        Ok(Some(copy))
    }
}
