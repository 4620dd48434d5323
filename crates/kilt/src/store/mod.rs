//! Pages and their passages on disk, memory-mapped.
//!
//! A store is a folder. `text.bin` holds every paragraph once, back to back; fixed-size rows in the other files point
//! into it, so a store opens by mapping its files, whatever its size:
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
//!
//! Numbers are little-endian.

mod build;
mod lookup;
mod plan;
mod scratch;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
};

use memmap2::Mmap;
use serde::{Deserialize, Serialize};

pub use build::{BuildOptions, Progress};
pub use lookup::normalize_title;
pub use plan::{Plan, PlanOptions, size_of_line};

use crate::{
    Error, Passage, PassageId, Result,
    passage::{self, ABSTRACT, Span, Split},
};

/// The layout that this version writes and reads.
pub const VERSION: u32 = 1;
const FORMAT: &str = "sporran-passages";
const MANIFEST: &str = "store.json";

const PAGE_ROW: usize = 32;
const PASSAGE_ROW: usize = 24;
const ID_ROW: usize = 12;
const TITLE_ROW: usize = 22;
/// A title row's redirect field where the title is the page's own.
const OWN_TITLE: u64 = u64::MAX;

/// What `store.json` says.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Manifest {
    format: String,
    version: u32,
    split: Split,
    pages: u32,
    passages: u32,
    paragraphs: u64,
    redirects: u32,
    /// BLAKE3 over the split and the files' hashes: what an index is bound to.
    hash: String,
    files: BTreeMap<String, Content>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    bytes: u64,
    blake3: String,
}

/// A page's place in its store, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageIndex(pub u32);

/// Pages and passages of a knowledge source.
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

impl PassageStore {
    /// Maps a store's files. Time and memory do not depend on its size; call [`verify`](Self::verify) to read it all.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that is missing, [`Error::Store`] for a folder of another format or version or a file
    /// whose length disagrees with the manifest.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
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
            let expected = manifest.files.get(name).ok_or_else(|| {
                Error::store(&path, format!("field `files`: expected an entry for `{name}`"))
            })?;
            let file = File::open(&file_path).map_err(|source| Error::io(&file_path, "open", source))?;
            let length = file.metadata().map_err(|source| Error::io(&file_path, "open", source))?.len();
            if length != expected.bytes {
                let message = format!("expected {} bytes, found {length}", expected.bytes);
                return Err(Error::store(&file_path, message));
            }
            // SAFETY: the file is only ever written in a temporary folder that is renamed when it is complete, and
            // never changed after; a user who truncates a store in use breaks that promise.
            unsafe { Mmap::map(&file) }.map_err(|source| Error::io(&file_path, "map", source))
        };
        let store = Self {
            text: map("text.bin")?,
            names: map("names.bin")?,
            paragraphs: map("paragraphs.bin")?,
            pages: map("pages.bin")?,
            passages: map("passages.bin")?,
            ids: map("ids.bin")?,
            titles: map("titles.bin")?,
            folder: folder.to_owned(),
            manifest,
        };
        let rows = [
            ("pages.bin", store.pages.len(), (store.manifest.pages as usize + 1) * PAGE_ROW),
            ("passages.bin", store.passages.len(), store.manifest.passages as usize * PASSAGE_ROW),
            ("paragraphs.bin", store.paragraphs.len(), store.manifest.paragraphs as usize * 4),
            ("ids.bin", store.ids.len(), store.manifest.pages as usize * ID_ROW),
            (
                "titles.bin",
                store.titles.len(),
                (store.manifest.pages as usize + store.manifest.redirects as usize) * TITLE_ROW,
            ),
        ];
        for (name, found, expected) in rows {
            if found != expected {
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
    /// [`Error::Store`] naming the first file that differs.
    pub fn verify(&self) -> Result<()> {
        for (name, content) in &self.manifest.files {
            let path = self.folder.join(name);
            let mut hasher = blake3::Hasher::new();
            let file = File::open(&path).map_err(|source| Error::io(&path, "open", source))?;
            hasher.update_reader(file).map_err(|source| Error::io(&path, "read", source))?;
            let found = hasher.finalize().to_hex().to_string();
            if found != content.blake3 {
                return Err(Error::store(
                    &path,
                    format!("expected BLAKE3 {}, found {found}", content.blake3),
                ));
            }
        }
        Ok(())
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

    /// How its pages were cut.
    pub fn split(&self) -> Split {
        self.manifest.split
    }

    /// BLAKE3 over its content, in hexadecimal: what an index of these passages is bound to.
    pub fn hash(&self) -> &str {
        &self.manifest.hash
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.manifest.files.values().map(|content| content.bytes).sum()
    }

    fn page_row(&self, page: PageIndex) -> PageRow {
        let row = &self.pages[page.0 as usize * PAGE_ROW..][..PAGE_ROW];
        PageRow {
            text: u64_at(row, 0),
            paragraph: u64_at(row, 8),
            names: u64_at(row, 16),
            passage: u32_at(row, 24),
            id: u16_at(row, 28),
            title: u16_at(row, 30),
        }
    }

    fn name(&self, start: u64, length: u16) -> &str {
        // Files that were damaged after they were written can hold anything; `verify` finds them.
        std::str::from_utf8(&self.names[start as usize..][..length as usize]).unwrap_or_default()
    }

    /// A page's id.
    pub fn page_id(&self, page: PageIndex) -> &str {
        let row = self.page_row(page);
        self.name(row.names, row.id)
    }

    /// A page's title.
    pub fn page_title(&self, page: PageIndex) -> &str {
        let row = self.page_row(page);
        self.name(row.names + u64::from(row.id), row.title)
    }

    /// Number of paragraphs of a page, the title included.
    pub fn paragraph_count(&self, page: PageIndex) -> usize {
        (self.page_row(PageIndex(page.0 + 1)).paragraph - self.page_row(page).paragraph) as usize
    }

    /// A page's paragraph, counted from 0 (the title).
    pub fn paragraph(&self, page: PageIndex, number: u32) -> &str {
        let row = self.page_row(page);
        let at = row.paragraph as usize + number as usize;
        let start = if number == 0 { 0 } else { u32_at(&self.paragraphs, (at - 1) * 4) };
        let end = u32_at(&self.paragraphs, at * 4);
        let bytes = &self.text[row.text as usize + start as usize..row.text as usize + end as usize];
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// A page's paragraphs.
    pub fn paragraphs(&self, page: PageIndex) -> impl Iterator<Item = &str> {
        (0..self.paragraph_count(page) as u32).map(move |number| self.paragraph(page, number))
    }

    /// The passages that a page was cut into.
    pub fn passages_of(&self, page: PageIndex) -> std::ops::Range<u32> {
        self.page_row(page).passage..self.page_row(PageIndex(page.0 + 1)).passage
    }

    /// The page that a passage was cut from.
    ///
    /// # Panics
    /// Where the passage is not of this store, as with an index out of bounds.
    pub fn page_of(&self, passage: PassageId) -> PageIndex {
        PageIndex(u32_at(&self.passages, passage.index() * PASSAGE_ROW))
    }

    fn span(&self, passage: PassageId) -> Span {
        let row = &self.passages[passage.index() * PASSAGE_ROW..][..PASSAGE_ROW];
        Span {
            start_paragraph: u32_at(row, 4),
            start: u32_at(row, 8),
            end_paragraph: u32_at(row, 12),
            end: u32_at(row, 16),
            section: u32_at(row, 20),
        }
    }

    /// A passage's text, without its title.
    ///
    /// # Panics
    /// Where the passage is not of this store.
    pub fn text(&self, passage: PassageId) -> String {
        let page = self.page_of(passage);
        passage::text(self.span(passage), self.split().list_items(), |number| self.paragraph(page, number))
    }

    /// A passage with its place.
    ///
    /// # Panics
    /// Where the passage is not of this store.
    pub fn passage(&self, id: PassageId) -> Passage {
        let page = self.page_of(id);
        let span = self.span(id);
        let characters =
            |number: u32, bytes: u32| self.paragraph(page, number)[..bytes as usize].chars().count() as u32;
        Passage {
            id,
            page_id: self.page_id(page).to_owned(),
            title: self.page_title(page).to_owned(),
            section: match span.section {
                Span::NO_SECTION => ABSTRACT.to_owned(),
                header => self.paragraph(page, header).trim().to_owned(),
            },
            text: passage::text(span, self.split().list_items(), |number| self.paragraph(page, number)),
            start_paragraph: span.start_paragraph,
            start_character: characters(span.start_paragraph, span.start),
            end_paragraph: span.end_paragraph,
            end_character: characters(span.end_paragraph, span.end),
        }
    }
}
