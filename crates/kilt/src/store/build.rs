//! Building a store as a stream, in bounded memory.
//!
//! Memory grows by 16 bytes a page and 32 bytes a title or redirect, for sorting the look-up rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::File,
    io::{BufWriter, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use rayon::prelude::*;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;

use super::{
    Content, FIELD_ENDS, FIELDS, FORMAT, Keys, MANIFEST, MARK_ENDS, MARKS, Manifest, OWN_TITLE, PageIndex,
    PassageStore, StoredMetadata, TEXT, VERSION,
    lookup::{key, normalize_title},
};
use crate::{
    Error, Id, Result,
    error::PAGE_ID,
    folder::{Building, Place},
    formats::Document,
    jsonl,
    metadata::{Field, Metadata, Readable},
    passage::{self, Mark, Span, Split, Splitter, TokenRanges},
};

/// The largest total length of the names of a source's fields, so that the manifest stays small.
const FIELD_NAMES: usize = 1 << 20;

/// The options of a build.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The knowledge source: JSON lines, plain, gzip or zstd.
    pub source: PathBuf,
    /// Redirects: `title TAB target title` lines; those with an unknown target are skipped.
    pub redirects: Option<PathBuf>,
    /// How pages are split.
    pub split: Split,
}

/// The progress of a build.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Pages stored.
    pub pages: u64,
    /// Passages stored.
    pub passages: u64,
    /// Bytes read from the source on disk.
    pub read: u64,
    /// Size of the source in bytes.
    pub size: u64,
}

/// The marks of a page's paragraphs, as in the field `places` of its record.
type Places = Vec<Vec<[u32; 3]>>;

/// The part of a page that the store keeps; the rest is skipped while parsing.
pub(super) struct SourcePage {
    wikipedia_id: Id,
    wikipedia_title: String,
    text: Vec<String>,
    /// The fields that KILT does not define, those of the object `metadata`, and `categories`.
    metadata: Metadata,
    /// The lines and pages of the paragraphs of a document.
    places: Places,
}

impl<'de> Deserialize<'de> for SourcePage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = SourcePage;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a page, an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SourcePage, A::Error> {
                SourcePage::read(map)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl SourcePage {
    fn read<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        fn once<T, E: serde::de::Error>(slot: &mut Option<T>, name: &'static str, value: T) -> Result<(), E> {
            if slot.replace(value).is_some() { Err(E::duplicate_field(name)) } else { Ok(()) }
        }
        let (mut id, mut title, mut text) = (None, None, None);
        let (mut metadata, mut inner) = (Metadata::default(), Metadata::default());
        let mut places = Places::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "wikipedia_id" => once::<_, A::Error>(&mut id, "wikipedia_id", map.next_value()?)?,
                "wikipedia_title" => once::<_, A::Error>(&mut title, "wikipedia_title", map.next_value()?)?,
                "text" => once::<_, A::Error>(&mut text, "text", map.next_value()?)?,
                "_id" | "anchors" | "history" | "wikidata_info" => {
                    map.next_value::<IgnoredAny>()?;
                }
                "places" => {
                    let value = map.next_value::<Value>()?;
                    match Places::deserialize(&value) {
                        Ok(found) => places = found,
                        // A field of the user's with this name.
                        Err(_) => {
                            Field::of(value).into_iter().for_each(|field| metadata.insert("places", field));
                        }
                    }
                }
                "metadata" => match map.next_value::<Value>()? {
                    Value::Object(object) => inner = Metadata::of(object),
                    other => {
                        Field::of(other).into_iter().for_each(|field| metadata.insert("metadata", field))
                    }
                },
                _ => {
                    let Readable(field) = map.next_value::<Readable>()?;
                    let field = match field {
                        Some(Field::Text(names)) if key == "categories" => Field::of_commas(&names),
                        other => other,
                    };
                    field.into_iter().for_each(|field| metadata.insert(key.as_str(), field));
                }
            }
        }
        metadata.add(inner);
        Ok(Self {
            wikipedia_id: id.ok_or_else(|| A::Error::missing_field("wikipedia_id"))?,
            wikipedia_title: title.ok_or_else(|| A::Error::missing_field("wikipedia_title"))?,
            text: text.ok_or_else(|| A::Error::missing_field("text"))?,
            metadata,
            places,
        })
    }
}

impl From<Document> for SourcePage {
    fn from(document: Document) -> Self {
        Self {
            wikipedia_id: Id::Text(document.id),
            wikipedia_title: document.title.clone(),
            text: vec![document.title, document.text],
            metadata: Metadata::of(document.metadata),
            places: Places::default(),
        }
    }
}

/// A page prepared by a worker thread.
pub(super) struct Prepared {
    pub(super) line: u64,
    pub(super) id: String,
    pub(super) title: String,
    pub(super) text: String,
    pub(super) ends: Vec<u32>,
    pub(super) spans: Vec<Span>,
    pub(super) metadata: Metadata,
    /// The metadata as JSON; empty if there is none.
    pub(super) fields: String,
    /// The marks of each paragraph; empty if the record has none.
    pub(super) marks: Vec<Vec<Mark>>,
    pub(super) id_key: u64,
    pub(super) title_key: u64,
}

/// Parses and splits one line.
pub(super) fn prepare(
    path: &jsonl::InputFile,
    line: u64,
    bytes: &[u8],
    splitter: &Splitter,
) -> Result<Prepared> {
    prepare_page(path, line, jsonl::parse(path, line, bytes)?, splitter)
}

/// Splits one page.
pub(super) fn prepare_page(
    path: &Path,
    line: u64,
    page: SourcePage,
    splitter: &Splitter,
) -> Result<Prepared> {
    let SourcePage { wikipedia_id, wikipedia_title: title, text: mut paragraphs, metadata, places } = page;
    let id = wikipedia_id.text().into_owned();
    let limit = |field: &str, value: &str| {
        if value.len() > usize::from(u16::MAX) {
            let message = format!("expected at most {} bytes, found {}", u16::MAX, value.len());
            return Err(Error::record(path, line, field, message));
        }
        Ok(())
    };
    if id.trim().is_empty() {
        return Err(Error::record(path, line, "wikipedia_id", "expected an id, found an empty string"));
    }
    limit("wikipedia_id", &id)?;
    limit("wikipedia_title", &title)?;
    if paragraphs.is_empty() {
        paragraphs.push(title.clone());
    }
    let marks: Vec<Vec<Mark>> = places
        .into_iter()
        .map(|marks| marks.into_iter().map(|[at, line, page]| Mark { at, line, page }).collect())
        .collect();
    if !marks.is_empty() && marks.len() != paragraphs.len() {
        let message =
            format!("expected a list for each of {} paragraphs, found {}", paragraphs.len(), marks.len());
        return Err(Error::record(path, line, "places", message));
    }
    let spans = passage::split(&paragraphs, splitter);
    let bytes = paragraphs.iter().map(String::len).sum();
    if u32::try_from(bytes).is_err() {
        let message = format!("expected at most {} bytes of text, found {bytes}", u32::MAX);
        return Err(Error::record(path, line, "text", message));
    }
    let mut text = String::with_capacity(bytes);
    let ends = paragraphs
        .iter()
        .map(|paragraph| {
            text.push_str(paragraph);
            text.len() as u32
        })
        .collect();
    let (id_key, title_key) = (key(&id), key(&normalize_title(&title)));
    let fields = match metadata.is_empty() {
        true => String::new(),
        false => serde_json::to_string(&metadata)
            .map_err(|error| Error::record(path, line, ".", error.to_string()))?,
    };
    Ok(Prepared { line, id, title, text, ends, spans, metadata, fields, marks, id_key, title_key })
}

/// A file that is hashed and counted as it is written.
struct Out {
    path: PathBuf,
    file: BufWriter<File>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Out {
    fn create(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(name);
        let file = File::create(&path).map_err(|source| Error::io(&path, "write", source))?;
        Ok(Self {
            path,
            file: BufWriter::with_capacity(1 << 20, file),
            hasher: blake3::Hasher::new(),
            bytes: 0,
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|source| Error::io(&self.path, "write", source))
    }

    fn finish(mut self) -> Result<(String, Content)> {
        let fail = |source| Error::io(&self.path, "write", source);
        self.file.flush().map_err(fail)?;
        self.file.get_ref().sync_data().map_err(fail)?;
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok((name, Content { bytes: self.bytes, blake3: self.hasher.finalize().to_hex().to_string() }))
    }
}

/// The files of the metadata. They exist if a page has metadata.
struct Fields {
    folder: PathBuf,
    places: Option<PlaceFiles>,
    values: Out,
    ends: Out,
    keys: BTreeMap<String, BTreeSet<crate::FieldKind>>,
    /// The total length of the keys.
    names: usize,
}

impl Fields {
    /// Starts the files after `pages` pages without metadata.
    fn create(folder: &Path, pages: u32) -> Result<Self> {
        let (values, mut ends) = (Out::create(folder, FIELDS)?, Out::create(folder, FIELD_ENDS)?);
        (0..pages).try_for_each(|_| ends.put(&0u64.to_le_bytes()))?;
        Ok(Self { folder: folder.to_owned(), places: None, values, ends, keys: BTreeMap::new(), names: 0 })
    }

    /// Adds a page, before which the store has `paragraphs` paragraphs.
    fn push(&mut self, page: &Prepared, paragraphs: u64, source: &Path) -> Result<()> {
        if self.places.is_none() && !page.marks.is_empty() {
            self.places = Some(PlaceFiles::create(&self.folder, paragraphs)?);
        }
        if let Some(places) = &mut self.places {
            places.push(page)?;
        }
        self.values.put(page.fields.as_bytes())?;
        self.ends.put(&self.values.bytes.to_le_bytes())?;
        for (key, field) in page.metadata.iter() {
            if let Some(kinds) = self.keys.get_mut(key) {
                kinds.insert(field.kind());
                continue;
            }
            self.names += key.len();
            if self.names > FIELD_NAMES {
                let message = format!(
                    "expected names of fields of at most {FIELD_NAMES} bytes in all pages, found more; \
                     put values into fields, not into their names"
                );
                return Err(Error::record(source, page.line, key, message));
            }
            self.keys.insert(key.to_owned(), BTreeSet::from([field.kind()]));
        }
        Ok(())
    }

    fn finish(self) -> Result<StoredMetadata> {
        let mut files = BTreeMap::from([self.values.finish()?, self.ends.finish()?]);
        if let Some(places) = self.places {
            files.extend([places.marks.finish()?, places.ends.finish()?]);
        }
        let keys: Keys =
            self.keys.into_iter().map(|(key, kinds)| (key, kinds.into_iter().collect())).collect();
        let mut metadata = StoredMetadata { hash: String::new(), keys, files };
        metadata.hash = metadata.content_hash();
        Ok(metadata)
    }
}

/// The files of the lines and pages of paragraphs. They exist if a page has them.
struct PlaceFiles {
    marks: Out,
    ends: Out,
    count: u64,
}

impl PlaceFiles {
    /// Starts the files after `paragraphs` paragraphs without marks.
    fn create(folder: &Path, paragraphs: u64) -> Result<Self> {
        let (marks, mut ends) = (Out::create(folder, MARKS)?, Out::create(folder, MARK_ENDS)?);
        (0..paragraphs).try_for_each(|_| ends.put(&0u64.to_le_bytes()))?;
        Ok(Self { marks, ends, count: 0 })
    }

    fn push(&mut self, page: &Prepared) -> Result<()> {
        for at in 0..page.ends.len() {
            for mark in page.marks.get(at).into_iter().flatten() {
                for number in [mark.at, mark.line, mark.page] {
                    self.marks.put(&number.to_le_bytes())?;
                }
                self.count += 1;
            }
            self.ends.put(&self.count.to_le_bytes())?;
        }
        Ok(())
    }
}

pub(super) struct Builder {
    folder: PathBuf,
    /// The files that were read, each with its first page.
    files: Vec<(u32, PathBuf)>,
    fields: Option<Fields>,
    text: Out,
    names: Out,
    paragraphs: Out,
    pages: Out,
    passages: Out,
    page_count: u32,
    passage_count: u32,
    paragraph_count: u64,
    /// Hash of the id, page.
    ids: Vec<(u64, u32)>,
    /// The source line of each page, for errors about duplicates.
    lines: Vec<u32>,
    /// Hash of the normalised title, page, start and length of the redirect's title.
    titles: Vec<(u64, u32, u64, u16)>,
}

impl Builder {
    /// Starts the files of a store in a folder.
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let out = |name: &str| Out::create(folder, name);
        Ok(Self {
            folder: folder.to_owned(),
            files: Vec::new(),
            fields: None,
            text: out(TEXT)?,
            names: out("names.bin")?,
            paragraphs: out("paragraphs.bin")?,
            pages: out("pages.bin")?,
            passages: out("passages.bin")?,
            page_count: 0,
            passage_count: 0,
            paragraph_count: 0,
            ids: Vec::new(),
            lines: Vec::new(),
            titles: Vec::new(),
        })
    }

    /// The next pages are those of this file.
    pub(super) fn begin(&mut self, file: &Path) {
        self.files.push((self.page_count, file.to_owned()));
    }

    pub(super) fn progress(&self, read: u64, size: u64) -> Progress {
        Progress { pages: self.page_count.into(), passages: self.passage_count.into(), read, size }
    }

    /// Completes the store and opens it.
    pub(super) fn complete(mut self, options: &BuildOptions, building: Building) -> Result<PassageStore> {
        if self.page_count == 0 {
            return Err(Error::Empty { path: options.source.clone(), what: "page" });
        }
        self.page_row(0, 0)?;
        finish(self, options, building.folder())?;
        PassageStore::open(building.finish()?)
    }

    pub(super) fn push(&mut self, page: Prepared, source: &Path) -> Result<()> {
        let full = |what: &str| {
            Error::record(
                source,
                page.line,
                ".",
                format!("more than {} {what} do not fit in one store", u32::MAX - 1),
            )
        };
        let index = self.page_count;
        self.page_row(page.id.len() as u16, page.title.len() as u16)?;
        self.text.put(page.text.as_bytes())?;
        self.names.put(page.id.as_bytes())?;
        self.names.put(page.title.as_bytes())?;
        for end in &page.ends {
            self.paragraphs.put(&end.to_le_bytes())?;
        }
        let paragraphs = self.paragraph_count;
        self.paragraph_count += page.ends.len() as u64;
        if self.fields.is_none() && !(page.fields.is_empty() && page.marks.is_empty()) {
            self.fields = Some(Fields::create(&self.folder, index)?);
        }
        if let Some(fields) = &mut self.fields {
            fields.push(&page, paragraphs, source)?;
        }
        for span in &page.spans {
            for field in [index, span.start_paragraph, span.start, span.end_paragraph, span.end, span.section]
            {
                self.passages.put(&field.to_le_bytes())?;
            }
        }
        self.ids.push((page.id_key, index));
        self.lines.push(u32::try_from(page.line).unwrap_or(u32::MAX));
        self.titles.push((page.title_key, index, OWN_TITLE, 0));
        self.page_count =
            index.checked_add(1).filter(|&count| count < u32::MAX).ok_or_else(|| full("pages"))?;
        let spans = u32::try_from(page.spans.len()).map_err(|_| full("passages"))?;
        self.passage_count = self
            .passage_count
            .checked_add(spans)
            .filter(|&count| count < u32::MAX)
            .ok_or_else(|| full("passages"))?;
        Ok(())
    }

    fn page_row(&mut self, id: u16, title: u16) -> Result<()> {
        self.pages.put(&self.text.bytes.to_le_bytes())?;
        self.pages.put(&self.paragraph_count.to_le_bytes())?;
        self.pages.put(&self.names.bytes.to_le_bytes())?;
        self.pages.put(&self.passage_count.to_le_bytes())?;
        self.pages.put(&id.to_le_bytes())?;
        self.pages.put(&title.to_le_bytes())
    }
}

impl PassageStore {
    /// Builds a store in a folder, which appears only when it is complete, and opens it. An existing store is
    /// replaced. If another process builds at the same path, this one waits for it first.
    ///
    /// # Errors
    /// Any error of reading the source ([`Error::Record`] with line and field), [`Error::DuplicateId`],
    /// [`Error::Empty`] for a source without pages, [`Error::InTheWay`] if something else exists at the path,
    /// [`Error::Io`] if writing fails.
    pub fn build(
        options: &BuildOptions,
        place: impl Into<Place>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        Self::build_with(options, None, place, progress)
    }

    /// As [`build`](Self::build), with the tokenizer of a split by tokens. Without one, words are taken for tokens.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_with(
        options: &BuildOptions,
        tokens: Option<Arc<TokenRanges>>,
        place: impl Into<Place>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        Self::build_range(options, tokens, Pages::ALL, place.into(), progress)
    }

    /// As [`build_with`](Self::build_with), of the pages in a range.
    pub(super) fn build_range(
        options: &BuildOptions,
        tokens: Option<Arc<TokenRanges>>,
        mut wanted: Pages,
        place: Place,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        let splitter = Splitter { split: options.split, tokens };
        let building = Building::create(place, is_store)?;
        let mut builder = Builder::create(building.folder())?;
        builder.begin(&options.source);
        let reader = jsonl::open(&options.source)?;
        let position = reader.position();
        reader.chunks(|path, chunk| {
            let lines = chunk.par_lines();
            let Range { start, end } = wanted.next(lines.len());
            let pages: Vec<Result<Prepared>> = lines
                .skip(start)
                .take(end - start)
                .map(|(line, bytes)| prepare(path, line, bytes, &splitter))
                .collect();
            for page in pages {
                builder.push(page?, path)?;
            }
            progress(builder.progress(position.read(), position.size()));
            Ok(())
        })?;
        builder.complete(options, building)
    }
}

/// The pages of a source that a store gets, of those that are still to be read.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    /// Pages to skip.
    before: usize,
    /// Pages to store after them.
    wanted: usize,
}

impl Pages {
    /// All pages.
    pub(super) const ALL: Self = Self { before: 0, wanted: usize::MAX };

    /// The pages in a range.
    pub(super) fn of(range: &Range<usize>) -> Self {
        Self { before: range.start, wanted: range.len() }
    }

    /// Which of the next `count` pages are wanted.
    pub(super) fn next(&mut self, count: usize) -> Range<usize> {
        let start = self.before.min(count);
        let end = start + self.wanted.min(count - start);
        self.before -= start;
        self.wanted -= end - start;
        start..end
    }
}

/// Whether a folder is a store of any version, which may be replaced.
pub(super) fn is_store(folder: &Path) -> bool {
    let manifest = jsonl::read_json::<serde_json::Value>(&folder.join(MANIFEST));
    manifest.is_ok_and(|manifest| manifest.get("format").is_some_and(|format| format == FORMAT))
}

/// Sorts and writes the look-up rows, then the manifest.
fn finish(builder: Builder, options: &BuildOptions, scratch: &Path) -> Result<()> {
    let Builder {
        files: sources,
        fields,
        text,
        mut names,
        paragraphs,
        pages,
        passages,
        mut ids,
        lines,
        mut titles,
        ..
    } = builder;
    let metadata = fields.map(Fields::finish).transpose()?;
    ids.par_sort_unstable();
    let mut ids_out = Out::create(scratch, "ids.bin")?;
    for (hash, page) in &ids {
        ids_out.put(&hash.to_le_bytes())?;
        ids_out.put(&page.to_le_bytes())?;
    }
    titles.par_sort_unstable();
    let mut files = BTreeMap::from([
        text.finish()?,
        paragraphs.finish()?,
        pages.finish()?,
        passages.finish()?,
        ids_out.finish()?,
    ]);

    // Equal ids and redirects require the pages' names, which are now on disk. A store without redirects
    // reads them.
    names.file.flush().map_err(|source| Error::io(&names.path, "write", source))?;
    let plain = write_titles(scratch, &titles)?;
    let mut manifest = Manifest {
        format: FORMAT.to_owned(),
        version: VERSION,
        split: options.split,
        pages: builder.page_count,
        passages: builder.passage_count,
        paragraphs: builder.paragraph_count,
        redirects: 0,
        hash: String::new(),
        files: files.clone(),
        metadata,
    };
    manifest
        .files
        .extend([plain, ("names.bin".to_owned(), Content { bytes: names.bytes, blake3: String::new() })]);
    write_manifest(scratch, &manifest)?;
    // Without checksums: one file is still incomplete.
    let store = PassageStore::map(scratch)?;
    for pair in ids.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        let (first, second) = (PageIndex(pair[0].1), PageIndex(pair[1].1));
        if store.stored_id(first) == store.stored_id(second) {
            let place = |page: PageIndex| {
                let file = sources.iter().rev().find(|(start, _)| *start <= page.0);
                (file.map_or(&options.source, |(_, path)| path), u64::from(lines[page.0 as usize]))
            };
            let (id, (path, line), (earlier, first)) = (store.stored_id(first), place(second), place(first));
            if path != earlier {
                let message = format!("`{id}` stands on line {first} of {} already", earlier.display());
                return Err(Error::record(path, line, PAGE_ID, message));
            }
            return Err(Error::DuplicateId {
                path: path.clone(),
                line,
                first,
                field: PAGE_ID,
                id: id.to_owned(),
            });
        }
    }
    if let Some(path) = &options.redirects {
        let mut redirects = 0u32;
        for line in jsonl::open(path)?.lines() {
            let (number, line) = line?;
            let Some((title, target)) = line.split_once('\t') else {
                return Err(Error::record(
                    path,
                    number,
                    "2",
                    "expected `title TAB target`, found one column",
                ));
            };
            let (title, target) = (title.trim(), target.trim());
            let Ok(length) = u16::try_from(title.len()) else {
                let message = format!("expected at most {} bytes, found {}", u16::MAX, title.len());
                return Err(Error::record(path, number, "1", message));
            };
            if let Some(page) = store.page_by_title(target) {
                titles.push((key(&normalize_title(title)), page.0, names.bytes, length));
                names.put(title.as_bytes())?;
                redirects += 1;
            }
        }
        titles.par_sort_unstable();
        manifest.redirects = redirects;
    }
    store.sound()?;
    drop(store);
    files.extend([names.finish()?, write_titles(scratch, &titles)?]);
    manifest.files = files;
    manifest.hash = manifest.content_hash();
    write_manifest(scratch, &manifest)
}

fn write_titles(scratch: &Path, titles: &[(u64, u32, u64, u16)]) -> Result<(String, Content)> {
    let mut out = Out::create(scratch, "titles.bin")?;
    for (hash, page, redirect, length) in titles {
        out.put(&hash.to_le_bytes())?;
        out.put(&page.to_le_bytes())?;
        out.put(&redirect.to_le_bytes())?;
        out.put(&length.to_le_bytes())?;
    }
    out.finish()
}

fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<()> {
    let path = folder.join(MANIFEST);
    let bytes =
        serde_json::to_vec_pretty(manifest).map_err(|error| Error::io(&path, "write", error.into()))?;
    jsonl::write(&path, &bytes)
}
