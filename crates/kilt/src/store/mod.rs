//! Pages and their passages on disk, memory-mapped.
//!
//! A store is a folder. `text.bin` holds every paragraph once, back to back; fixed-size rows in the other files point
//! into it, so that a store is mapped and nothing of it is kept in memory:
//!
//! | file | rows |
//! |---|---|
//! | `store.json` | version, split, counts, and length and BLAKE3 hash of every other file |
//! | `text.bin` | paragraphs, UTF-8 |
//! | `names.bin` | each page's id and title, then each redirect's title |
//! | `paragraphs.bin` | end of each paragraph, u32, relative to its page's text |
//! | `pages.bin` | start of text u64, first paragraph u64, start of names u64, first passage u32, lengths of id and title u16; one more row closes the last page |
//! | `passages.bin` | page, start paragraph, start, end paragraph, end, section: u32 each, bytes within paragraphs |
//! | `ids.bin` | hash of the id u64, page u32; sorted |
//! | `titles.bin` | hash of the normalised title u64, page u32, start of the redirect's title u64 (all ones: the page's own title), its length u16; sorted |
//! | `fields.bin` | each page's metadata, a JSON object; nothing for a page without metadata |
//! | `field-ends.bin` | end of each page's metadata, u64 |
//! | `marks.bin` | byte of a paragraph from which its text is on a line and a page of its file: u32 each |
//! | `mark-ends.bin` | end of each paragraph's marks, u64 |
//!
//! A store has the two files of metadata if a page has metadata, and the last two if a page has the places of its
//! paragraphs. The store's hash does not cover them, so an index depends on the texts alone. They have their own hash.
//!
//! Numbers are little-endian.

mod build;
mod collection;
mod lookup;
mod parts;
mod plan;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use memmap2::Mmap;
use serde::{Deserialize, Serialize};

pub use build::{BuildOptions, Progress};
pub use lookup::normalize_title;
pub(crate) use lookup::{percent_decoded, title_of_href};
pub use parts::count_pages;
pub use plan::{Plan, PlanOptions, SampledPassage, size_of_line};

use crate::{
    Error, Field, FieldKind, FilePlace, Metadata, Passage, PassageId, Result,
    folder::{self, Contents},
    passage::{self, ABSTRACT, Mark, Paragraphs, Span, Split},
};

/// The layout that this version writes and reads.
pub const VERSION: u32 = 1;
const FORMAT: &str = "sporran-passages";
const MANIFEST: &str = "store.json";
const TEXT: &str = "text.bin";
const FIELDS: &str = "fields.bin";
const FIELD_ENDS: &str = "field-ends.bin";
const MARKS: &str = "marks.bin";
const MARK_ENDS: &str = "mark-ends.bin";

const PAGE_ROW: usize = 32;
const PASSAGE_ROW: usize = 24;
const ID_ROW: usize = 12;
const TITLE_ROW: usize = 22;
const FIELD_END_ROW: usize = 8;
const MARK_ROW: usize = 12;
const MARK_END_ROW: usize = 8;
/// The redirect field of a row for the page's title.
const OWN_TITLE: u64 = u64::MAX;

/// The contents of `store.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Manifest {
    format: String,
    version: u32,
    split: Split,
    pages: u32,
    passages: u32,
    paragraphs: u64,
    redirects: u32,
    /// BLAKE3 over the split and the files' hashes, which indexes refer to.
    hash: String,
    files: BTreeMap<String, Content>,
    /// Missing in stores without metadata and in stores of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<StoredMetadata>,
}

/// The fields of a store's pages, each with the types of its values.
pub type Keys = BTreeMap<String, Vec<FieldKind>>;

/// The files of the metadata.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredMetadata {
    /// BLAKE3 over the keys and the files' hashes.
    hash: String,
    keys: Keys,
    files: BTreeMap<String, Content>,
}

impl StoredMetadata {
    /// The hash of the metadata from the manifest's keys and files.
    fn content_hash(&self) -> String {
        let hashes: Vec<_> = self.files.iter().map(|(name, content)| (name, &content.blake3)).collect();
        crate::hash_json(&(&self.keys, hashes))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    bytes: u64,
    blake3: String,
}

impl Manifest {
    /// The store's hash from the manifest's split and files.
    fn content_hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(serde_json::to_string(&(VERSION, self.split)).unwrap_or_default().as_bytes());
        for (name, content) in &self.files {
            hasher.update(name.as_bytes()).update(content.blake3.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The other files of the folder.
    fn all_files(&self) -> impl Iterator<Item = (&String, &Content)> {
        self.files.iter().chain(self.metadata.iter().flat_map(|metadata| &metadata.files))
    }

    /// The other files of the folder, for comparing their checksums.
    fn contents<'a>(&'a self, folder: &'a Path) -> Contents<'a> {
        let file = |(name, content): (&'a String, &'a Content)| folder::File {
            name,
            bytes: content.bytes,
            blake3: &content.blake3,
        };
        Contents::new(folder, self.all_files().map(file))
    }
}

/// The index of a page in its store, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageIndex(pub u32);

/// Pages and passages of a knowledge source.
///
/// ```
/// use sporran_kilt::{PassageId, PassageSplit, PassageStore, store::BuildOptions};
///
/// let folder = tempfile::tempdir()?;
/// let source = folder.path().join("source.jsonl");
/// let page = r#"{"wikipedia_id": "1", "wikipedia_title": "Oslo", "text": ["Oslo", "Oslo is the capital of Norway."]}"#;
/// std::fs::write(&source, page)?;
///
/// let options = BuildOptions { source, redirects: None, split: PassageSplit::Words };
/// let store = PassageStore::build(&options, folder.path().join("store"), &mut |_progress| {})?;
/// let passage = store.passage(PassageId(0));
/// assert_eq!((store.len(), passage.title.as_str()), (1, "Oslo"));
/// assert_eq!(passage.text, "Oslo is the capital of Norway.");
/// assert_eq!(store.page_by_title("oslo"), store.page_by_id("1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PassageStore {
    folder: PathBuf,
    manifest: Manifest,
    text: Mmap,
    names: Mmap,
    paragraphs: Mmap,
    pages: Mmap,
    passages: Mmap,
    ids: Mmap,
    titles: Mmap,
    /// The metadata and their ends, if pages have metadata.
    fields: Option<(Mmap, Mmap)>,
    /// The marks and their ends, if paragraphs have lines or pages.
    marks: Option<(Mmap, Mmap)>,
    /// The sources of files: the paths in the store, and those to show.
    sources: Vec<(String, String)>,
    /// The first impossible content that an accessor found.
    damage: OnceLock<(&'static str, String)>,
}

/// A file by another path of its source: `sources` are the paths of sources, each with the path to show. `None` for a file of
/// none of them.
pub fn shown_path(file: &str, sources: &[(String, String)]) -> Option<String> {
    sources.iter().find_map(|(stored, shown)| other_path(file, stored, shown))
}

/// A file of the source `from` as one of the source `to`. A record of a file has `#` and its number after the path.
fn other_path(file: &str, from: &str, to: &str) -> Option<String> {
    let rest = file.strip_prefix(from)?;
    let is_whole = rest.is_empty() || rest.starts_with(['/', '#']) || from.ends_with('/');
    is_whole.then(|| format!("{to}{rest}"))
}

/// A row of `pages.bin`.
#[derive(Clone, Copy)]
struct PageRow {
    text: u64,
    paragraph: u64,
    names: u64,
    passage: u32,
    id: u16,
    title: u16,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// A part of a file; none if it is out of range.
fn bytes_of(map: &Mmap, start: u64, length: u64) -> Option<&[u8]> {
    let end = usize::try_from(start.saturating_add(length)).ok()?;
    map.get(usize::try_from(start).ok()?..end)
}

/// The paragraphs of a page of a store.
#[derive(Clone, Copy)]
struct ParagraphsOf<'s> {
    store: &'s PassageStore,
    page: PageIndex,
}

impl<'s> Paragraphs<'s> for ParagraphsOf<'s> {
    fn bytes(self, number: u32) -> &'s [u8] {
        let (start, length) = self.store.paragraph_range(self.page, number);
        bytes_of(&self.store.text, start, length).unwrap_or_default()
    }

    fn part(self, number: u32, bytes: Range<usize>) -> &'s str {
        let (start, length) = self.store.paragraph_range(self.page, number);
        let (from, to) = (bytes.start as u64, (bytes.end as u64).min(length));
        self.store.text_at(&self.store.text, TEXT, start.saturating_add(from), to.saturating_sub(from))
    }
}

impl PassageStore {
    /// Opens a store: maps its files and verifies their checksums (see [`Contents::check`]; a large store is
    /// read at its first opening, and again only after writes to its files).
    ///
    /// # Errors
    /// [`Error::Io`] for a missing file, [`Error::Store`] for a folder of another format or version or a file whose length
    /// differs from the manifest, [`Error::Checksum`] for a damaged file.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(folder.as_ref(), |contents| contents.check())
    }

    /// As [`open`](Self::open), but always reads every file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_verified(folder: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(folder.as_ref(), |contents| contents.verify())
    }

    fn open_with(folder: &Path, compare: impl FnOnce(&Contents<'_>) -> Result<()>) -> Result<Self> {
        let store = Self::map(folder)?;
        let path = store.folder.join(MANIFEST);
        let metadata = store.manifest.metadata.as_ref();
        let hashes = [(&store.manifest.hash, store.manifest.content_hash())]
            .into_iter()
            .chain(metadata.map(|metadata| (&metadata.hash, metadata.content_hash())));
        for (expected, found) in hashes {
            if *expected != found {
                let (expected, folder) = (expected.clone(), store.folder.clone());
                return Err(Error::Checksum { path, expected, found, folder });
            }
        }
        compare(&store.manifest.contents(&store.folder))?;
        Ok(store)
    }

    /// Maps the files of a store after checking types and lengths.
    fn map(folder: &Path) -> Result<Self> {
        folder::restore(folder);
        let path = folder.join(MANIFEST);
        let value: serde_json::Value = crate::jsonl::read_json(&path)?;
        let format = value.get("format").and_then(|format| format.as_str()).unwrap_or_default();
        if format != FORMAT {
            return Err(Error::store(
                &path,
                format!("field `format`: expected `{FORMAT}`, found `{format}`"),
            ));
        }
        let version = value.get("version").and_then(|version| version.as_u64()).unwrap_or_default();
        if version != u64::from(VERSION) {
            let message = format!(
                "field `version`: this program reads version {VERSION}, the store has version {version}; build it again with `sporran index`"
            );
            return Err(Error::store(&path, message));
        }
        let manifest: Manifest = crate::jsonl::read_json(&path)?;
        let map = |name: &str| -> Result<Mmap> {
            let file_path = folder.join(name);
            let expected = manifest.all_files().find(|(found, _)| *found == name).ok_or_else(|| {
                Error::store(&path, format!("field `files`: expected an entry for `{name}`"))
            })?;
            let expected = expected.1;
            let file = File::open(&file_path).map_err(|source| Error::io(&file_path, "open", source))?;
            let length = file.metadata().map_err(|source| Error::io(&file_path, "open", source))?.len();
            if length != expected.bytes {
                let message = format!(
                    "expected {} bytes, found {length}: the file is damaged; delete the folder, and the next run builds it again",
                    expected.bytes
                );
                return Err(Error::store(&file_path, message));
            }
            // SAFETY: files are written only in a temporary folder, which is renamed when it is complete, and
            // never change afterwards. A user who truncates a store in use breaks this promise.
            unsafe { Mmap::map(&file) }.map_err(|source| Error::io(&file_path, "map", source))
        };
        let store = Self {
            text: map(TEXT)?,
            names: map("names.bin")?,
            paragraphs: map("paragraphs.bin")?,
            pages: map("pages.bin")?,
            passages: map("passages.bin")?,
            ids: map("ids.bin")?,
            titles: map("titles.bin")?,
            fields: match &manifest.metadata {
                None => None,
                Some(_) => Some((map(FIELDS)?, map(FIELD_ENDS)?)),
            },
            marks: match &manifest.metadata {
                Some(metadata) if metadata.files.contains_key(MARKS) => Some((map(MARKS)?, map(MARK_ENDS)?)),
                _ => None,
            },
            folder: folder.to_owned(),
            manifest,
            sources: Vec::new(),
            damage: OnceLock::new(),
        };
        let of = |count: u64, width: usize| count.saturating_mul(width as u64);
        let Manifest { pages, passages, paragraphs, redirects, .. } = store.manifest;
        let (pages, redirects) = (u64::from(pages), u64::from(redirects));
        let rows = [
            ("pages.bin", &store.pages, of(pages + 1, PAGE_ROW)),
            ("passages.bin", &store.passages, of(passages.into(), PASSAGE_ROW)),
            ("paragraphs.bin", &store.paragraphs, of(paragraphs, 4)),
            ("ids.bin", &store.ids, of(pages, ID_ROW)),
            ("titles.bin", &store.titles, of(pages + redirects, TITLE_ROW)),
        ];
        let ends = store.fields.iter().map(|(_, ends)| (FIELD_ENDS, ends, of(pages, FIELD_END_ROW)));
        let mark_ends = store.marks.iter().map(|(_, ends)| (MARK_ENDS, ends, of(paragraphs, MARK_END_ROW)));
        for (name, map, expected) in rows.into_iter().chain(ends).chain(mark_ends) {
            if map.len() as u64 != expected {
                let found = map.len();
                let message =
                    format!("expected {expected} bytes of rows by the counts of {MANIFEST}, found {found}");
                return Err(Error::store(&folder.join(name), message));
            }
        }
        Ok(store)
    }

    /// Reads every file and compares its hash with the manifest's.
    ///
    /// # Errors
    /// [`Error::Checksum`] for the first file that differs.
    pub fn verify(&self) -> Result<()> {
        self.manifest.contents(&self.folder).verify()
    }

    /// Checks that all content that accessors read so far was valid.
    ///
    /// Damage may happen after the verification of checksums. Then accessors return empty texts and page 0
    /// for unreadable content. Call this before storing results from the store.
    ///
    /// # Errors
    /// [`Error::Store`] for the first invalid content.
    pub fn sound(&self) -> Result<()> {
        self.damage.get().map_or(Ok(()), |(name, message)| {
            let message = format!(
                "{message}: the file is damaged; delete the folder, and the next run builds it again"
            );
            Err(Error::store(&self.folder.join(name), message))
        })
    }

    /// Records invalid content.
    fn damaged(&self, name: &'static str, message: impl FnOnce() -> String) {
        self.damage.get_or_init(|| (name, message()));
    }

    /// Number of passages.
    pub fn len(&self) -> usize {
        self.manifest.passages as usize
    }

    /// Whether there are no passages; a built store has at least one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.manifest.pages as usize
    }

    /// How its pages were split.
    pub fn split(&self) -> Split {
        self.manifest.split
    }

    /// BLAKE3 over its content, in hexadecimal, which indexes of these passages refer to.
    pub fn hash(&self) -> &str {
        &self.manifest.hash
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// BLAKE3 over the metadata, in hexadecimal; `None` if no page has metadata, and for a store of an earlier
    /// version.
    pub fn metadata_hash(&self) -> Option<&str> {
        self.manifest.metadata.as_ref().map(|metadata| metadata.hash.as_str())
    }

    /// The names of the fields of all pages, each with the types of its values.
    pub fn keys(&self) -> &Keys {
        static NONE: Keys = Keys::new();
        self.manifest.metadata.as_ref().map_or(&NONE, |metadata| &metadata.keys)
    }

    /// Whether a page may name a place in a file or a section.
    pub fn has_places(&self) -> bool {
        let has = |key, kind| self.keys().get(key).is_some_and(|kinds| kinds.contains(&kind));
        ["file", "section"].into_iter().any(|key| has(key, FieldKind::Text))
            || ["line", "page"].into_iter().any(|key| has(key, FieldKind::Number))
            || self.marks.is_some()
    }

    /// The place in a file of a byte of a paragraph: that which the page's record names, with the line and the page of
    /// the paragraph.
    pub fn file_place(&self, page: PageIndex, paragraph: u32, byte: u32) -> FilePlace {
        let mut file = self.metadata(page).file();
        self.locate(&mut file, page, paragraph, byte);
        file
    }

    /// Sets the line and the page of a byte of a paragraph, if the store has them.
    fn locate(&self, file: &mut FilePlace, page: PageIndex, paragraph: u32, byte: u32) {
        let rows = self.mark_rows(page, paragraph);
        let after = rows.partition_point(|row| u32_at(row, 0) <= byte);
        let Some(row) = rows.get(after.saturating_sub(1)) else { return };
        let number = |at: usize| Some(u64::from(u32_at(row, at))).filter(|&number| number > 0);
        file.line = number(4).or(file.line);
        file.page = number(8).or(file.page);
    }

    /// The marks of a paragraph; empty without any.
    fn marks_of(&self, page: PageIndex, paragraph: u32) -> Vec<Mark> {
        let mark =
            |row: &[u8; MARK_ROW]| Mark { at: u32_at(row, 0), line: u32_at(row, 4), page: u32_at(row, 8) };
        self.mark_rows(page, paragraph).iter().map(mark).collect()
    }

    fn mark_rows(&self, page: PageIndex, paragraph: u32) -> &[[u8; MARK_ROW]] {
        let Some((marks, ends)) = &self.marks else { return &[] };
        let at = self.page_row(page).paragraph.saturating_add(paragraph.into());
        let end_of = |at: u64| {
            let end = usize::try_from(at).ok().and_then(|at| ends.as_chunks::<MARK_END_ROW>().0.get(at));
            end.and_then(|end| usize::try_from(u64::from_le_bytes(*end)).ok())
        };
        let start = if at == 0 { Some(0) } else { end_of(at - 1) };
        let rows =
            start.zip(end_of(at)).and_then(|(start, end)| marks.as_chunks::<MARK_ROW>().0.get(start..end));
        rows.unwrap_or_else(|| {
            self.damaged(MARK_ENDS, || format!("paragraph {paragraph} of page {}: no marks", page.0));
            &[]
        })
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.manifest.all_files().map(|(_, content)| content.bytes).sum()
    }

    fn page_row(&self, page: PageIndex) -> PageRow {
        let row = self.pages.get(page.0 as usize * PAGE_ROW..).and_then(|rows| rows.get(..PAGE_ROW));
        let Some(row) = row else {
            self.damaged("pages.bin", || format!("expected a page below {}, found {}", self.pages(), page.0));
            return PageRow { text: 0, paragraph: 0, names: 0, passage: 0, id: 0, title: 0 };
        };
        PageRow {
            text: u64_at(row, 0),
            paragraph: u64_at(row, 8),
            names: u64_at(row, 16),
            passage: u32_at(row, 24),
            id: u16_at(row, 28),
            title: u16_at(row, 30),
        }
    }

    /// A page by its number in a row of another file; page 0 if there is none.
    fn page_at(&self, row: &[u8], at: usize, name: &'static str) -> PageIndex {
        let page = u32_at(row, at);
        if page < self.manifest.pages {
            return PageIndex(page);
        }
        self.damaged(name, || format!("expected a page below {}, found {page}", self.pages()));
        PageIndex(0)
    }

    /// A text in a file; empty if out of range.
    fn text_at<'s>(&self, map: &'s Mmap, name: &'static str, start: u64, length: u64) -> &'s str {
        let bytes = bytes_of(map, start, length);
        bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_else(|| {
            let end = start.saturating_add(length);
            self.damaged(name, || format!("expected text in bytes {start} to {end}, found none"));
            ""
        })
    }

    fn name(&self, start: u64, length: u16) -> &str {
        self.text_at(&self.names, "names.bin", start, length.into())
    }

    /// A page's id. That of a file of several sources begins with the path of its source as [`with_sources`](Self::with_sources)
    /// names it.
    pub fn page_id(&self, page: PageIndex) -> Cow<'_, str> {
        let id = self.stored_id(page);
        shown_path(id, &self.sources).map_or(Cow::Borrowed(id), Cow::Owned)
    }

    /// A page's id as it is stored.
    pub(crate) fn stored_id(&self, page: PageIndex) -> &str {
        let row = self.page_row(page);
        self.name(row.names, row.id)
    }

    /// A page's title.
    pub fn page_title(&self, page: PageIndex) -> &str {
        let row = self.page_row(page);
        self.name(row.names.saturating_add(row.id.into()), row.title)
    }

    /// The metadata of a page, which its passages share, with `file`, `line`, `page` and `section`.
    pub fn metadata(&self, page: PageIndex) -> Metadata {
        let mut metadata = self.stored_metadata(page);
        let file =
            metadata.get("file").and_then(Field::text).and_then(|file| shown_path(file, &self.sources));
        if let Some(file) = file {
            metadata.insert("file", Field::Text(file));
        }
        metadata
    }

    /// The metadata of a page, with its file as it is stored.
    fn stored_metadata(&self, page: PageIndex) -> Metadata {
        let Some(text) = self.fields_of(page) else { return Metadata::default() };
        Metadata::parse(text).unwrap_or_else(|| {
            self.no_fields(page);
            Metadata::default()
        })
    }

    /// The same store, which names files and pages by other paths of their sources: for each source its path in the store and the
    /// path to show. So one store serves all names of a folder. Indexes and hashes do not depend on it.
    #[must_use]
    pub fn with_sources(self, sources: Vec<(String, String)>) -> Self {
        Self { sources, ..self }
    }

    /// The metadata of a page as JSON; none for a page without metadata.
    fn fields_of(&self, page: PageIndex) -> Option<&str> {
        let (fields, ends) = self.fields.as_ref()?;
        let end_of =
            |page: u32| ends.as_chunks::<8>().0.get(page as usize).map(|end| u64::from_le_bytes(*end));
        let start = if page.0 == 0 { Some(0) } else { end_of(page.0 - 1) };
        match (start, end_of(page.0)) {
            (Some(start), Some(end)) if start == end => None,
            (Some(start), Some(end)) if start < end => Some(self.text_at(fields, FIELDS, start, end - start)),
            _ => {
                self.no_fields(page);
                None
            }
        }
    }

    fn no_fields(&self, page: PageIndex) {
        self.damaged(FIELDS, || format!("page {}: expected a JSON object of fields, found none", page.0));
    }

    /// Number of paragraphs of a page, the title included.
    pub fn paragraph_count(&self, page: PageIndex) -> usize {
        let first = self.page_row(page).paragraph;
        let end = self.page_row(PageIndex(page.0.saturating_add(1))).paragraph;
        if first > end || end > self.manifest.paragraphs {
            self.damaged("pages.bin", || format!("page {}: no paragraphs {first} to {end}", page.0));
            return 0;
        }
        (end - first) as usize
    }

    /// A page's paragraph, counted from 0 (the title).
    pub fn paragraph(&self, page: PageIndex, number: u32) -> &str {
        let (start, length) = self.paragraph_range(page, number);
        self.text_at(&self.text, TEXT, start, length)
    }

    /// The first byte of a paragraph in the file of texts, and its length; 0 and 0 if the store is damaged.
    fn paragraph_range(&self, page: PageIndex, number: u32) -> (u64, u64) {
        let row = self.page_row(page);
        let at = row.paragraph.saturating_add(number.into());
        let end_of = |at: u64| {
            let end = usize::try_from(at).ok().and_then(|at| self.paragraphs.as_chunks::<4>().0.get(at));
            end.map(|end| u64::from(u32::from_le_bytes(*end)))
        };
        let start = if number == 0 { Some(0) } else { end_of(at - 1) };
        match (start, end_of(at)) {
            (Some(start), Some(end)) if start <= end => (row.text.saturating_add(start), end - start),
            (start, end) => {
                self.damaged("paragraphs.bin", || {
                    format!("paragraph {number} of page {}: no bytes {start:?} to {end:?}", page.0)
                });
                (0, 0)
            }
        }
    }

    fn paragraphs_of(&self, page: PageIndex) -> ParagraphsOf<'_> {
        ParagraphsOf { store: self, page }
    }

    /// A page's paragraphs.
    pub fn paragraphs(&self, page: PageIndex) -> impl Iterator<Item = &str> {
        (0..self.paragraph_count(page) as u32).map(move |number| self.paragraph(page, number))
    }

    /// The passages of a page.
    pub fn passages_of(&self, page: PageIndex) -> std::ops::Range<u32> {
        let first = self.page_row(page).passage;
        let end = self.page_row(PageIndex(page.0.saturating_add(1))).passage;
        if first > end || end > self.manifest.passages {
            self.damaged("pages.bin", || format!("page {}: no passages {first} to {end}", page.0));
            return 0..0;
        }
        first..end
    }

    /// The page of a passage.
    ///
    /// # Panics
    /// If the store lacks the passage, as with an index out of bounds.
    pub fn page_of(&self, passage: PassageId) -> PageIndex {
        self.page_at(&self.passages, passage.index() * PASSAGE_ROW, "passages.bin")
    }

    /// The span of a passage of a page, and its section's header; empty if invalid.
    fn span(&self, passage: PassageId, page: PageIndex) -> Span {
        let row = &self.passages[passage.index() * PASSAGE_ROW..][..PASSAGE_ROW];
        let span = Span {
            start_paragraph: u32_at(row, 4),
            start: u32_at(row, 8),
            end_paragraph: u32_at(row, 12),
            end: u32_at(row, 16),
            section: u32_at(row, 20),
        };
        let count = self.paragraph_count(page);
        let within = |paragraph: u32, byte: u32| {
            // The bytes of a character after its first one are 10xxxxxx.
            let bytes = || self.paragraphs_of(page).bytes(paragraph);
            let is_boundary = |bytes: &[u8]| match bytes.get(byte as usize) {
                None => byte as usize == bytes.len(),
                Some(first) => first & 0b1100_0000 != 0b1000_0000,
            };
            (paragraph as usize) < count && is_boundary(bytes())
        };
        let ordered = (span.start_paragraph, span.start) <= (span.end_paragraph, span.end);
        let headed = span.section == Span::NO_SECTION || (span.section as usize) < count;
        if ordered
            && headed
            && within(span.start_paragraph, span.start)
            && within(span.end_paragraph, span.end)
        {
            return span;
        }
        self.damaged("passages.bin", || {
            format!("passage {}: expected a span of page {}, found {span:?}", passage.0, page.0)
        });
        Span { start_paragraph: 0, start: 0, end_paragraph: 0, end: 0, section: Span::NO_SECTION }
    }

    /// A passage's text, without its title.
    ///
    /// # Panics
    /// If the store lacks the passage.
    pub fn text(&self, passage: PassageId) -> String {
        let page = self.page_of(passage);
        let span = self.span(passage, page);
        passage::text(span, self.split().list_items(), self.paragraphs_of(page))
    }

    /// The parts of paragraphs that are a passage's text, in order: the number of the paragraph and its bytes. One blank joins
    /// them in [`text`](Self::text).
    ///
    /// # Panics
    /// If the store lacks the passage.
    pub fn pieces(&self, passage: PassageId) -> impl Iterator<Item = (u32, Range<usize>)> {
        let page = self.page_of(passage);
        let span = self.span(passage, page);
        passage::pieces(span, self.split().list_items(), self.paragraphs_of(page))
    }

    /// The header above a passage's start; `None` before the first one.
    ///
    /// # Panics
    /// If the store lacks the passage.
    pub fn header(&self, id: PassageId) -> Option<&str> {
        let page = self.page_of(id);
        self.header_of(self.span(id, page), page)
    }

    fn header_of(&self, span: Span, page: PageIndex) -> Option<&str> {
        let header = (span.section != Span::NO_SECTION).then(|| self.paragraph(page, span.section).trim());
        header.map(passage::section_name)
    }

    /// A passage with its provenance.
    ///
    /// # Panics
    /// If the store lacks the passage.
    pub fn passage(&self, id: PassageId) -> Passage {
        let page = self.page_of(id);
        let span = self.span(id, page);
        let mut metadata = self.metadata(page);
        let (mut file, section) = metadata.take_place();
        self.locate(&mut file, page, span.start_paragraph, span.start);
        let header = self.header_of(span, page).map(str::to_owned);
        let characters = |number: u32, bytes: u32| {
            let before = self.paragraph(page, number).get(..bytes as usize);
            before.map_or(0, |text| text.chars().count() as u32)
        };
        Passage {
            id,
            page_id: self.page_id(page).into_owned(),
            title: self.page_title(page).to_owned(),
            section: header.or(section).unwrap_or_else(|| ABSTRACT.to_owned()),
            text: passage::text(span, self.split().list_items(), self.paragraphs_of(page)),
            start_paragraph: span.start_paragraph,
            start_character: characters(span.start_paragraph, span.start),
            end_paragraph: span.end_paragraph,
            end_character: characters(span.end_paragraph, span.end),
            file,
            metadata,
        }
    }
}
