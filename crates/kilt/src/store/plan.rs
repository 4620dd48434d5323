//! An estimate of the resources of a store, from a sample of its source.
//!
//! The lengths of a knowledge source's pages differ, and not at random: KILT's first pages are the longest,
//! and an extract may be sorted. So a plain file is sampled at evenly spaced positions. A compressed file can
//! only be read from its beginning, but decompression is cheap compared with parsing. So much more is
//! decompressed than parsed, its lines are counted, and only the rest is extrapolated, by compressed bytes.

use std::{
    fs::File,
    io::{BufRead, BufReader, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Instant,
};

use rayon::prelude::*;
use serde::Serialize;

use super::{
    FIELD_END_ROW, ID_ROW, PAGE_ROW, PASSAGE_ROW, TITLE_ROW,
    build::{prepare, prepare_page},
};
use crate::{
    Error, PassageStore, Result,
    formats::Collection,
    jsonl::{self, Chunk, Input, InputFile},
    passage::{self, Span, Split},
};

/// The size of the sample for [`PassageStore::plan`].
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// The approximate number of bytes to parse; slightly more for a compressed source.
    pub parsed: u64,
    /// The smallest number of bytes to decompress, if the source is that long.
    pub decompressed: u64,
}

impl Default for PlanOptions {
    /// A sample of a few seconds.
    fn default() -> Self {
        Self { parsed: 64 << 20, decompressed: 1 << 30 }
    }
}

/// A title and a text.
pub type SampledPassage = (String, String);

/// The estimated resources of a store.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The number of parsed pages.
    pub sampled_pages: u64,
    /// The number of counted pages. Pages that were only counted are assumed to be like their neighbours.
    pub counted_pages: u64,
    /// The share of the source's bytes on disk whose pages were counted.
    pub read: f64,
    /// Whether every page was parsed, so that the values are exact.
    pub complete: bool,
    /// Pages of the whole source.
    pub pages: u64,
    /// The relative standard error of `pages`, from the variation between sampled parts; 0 if all were
    /// counted. For a compressed source it assumes that the unread rest is like the sample.
    pub pages_error: f64,
    /// Passages of the whole source.
    pub passages: u64,
    /// Bytes of the store.
    pub disk_bytes: u64,
    /// Bytes of memory for its build, without the program itself.
    pub memory_bytes: u64,
    /// Seconds for reading, parsing and splitting on one thread, at the sample's speed.
    pub seconds: f64,
    /// Passages from all parts of the source that were read, from which the sizes of indexes can be estimated.
    #[serde(skip)]
    pub sample: Vec<SampledPassage>,
}

/// The memory of any build: batches of lines that are read, parsed and written.
const FIXED_MEMORY: u64 = 96 << 20;
/// The number of pages of a part whose passages are in the sample.
const SAMPLED_PAGES: usize = 8;
/// The most passages of such a page.
const SAMPLED_PASSAGES: usize = 8;
/// The memory for each page: rows of ids and titles, and the line number.
const MEMORY_A_PAGE: u64 = 16 + 32 + 4;
/// The number of parts in which a plain source is sampled.
const PARTS: u64 = 512;
/// One in this many lines is parsed after the requested number of bytes.
const STRIDE: usize = 16;

/// A sampled part of a source.
#[derive(Clone, Copy, Default)]
struct Part {
    /// Bytes on disk.
    disk: u64,
    /// Bytes of the source that it represents.
    share: f64,
    pages: u64,
    parsed: u64,
    passages: f64,
    bytes: f64,
    /// Pages with metadata.
    described: f64,
}

#[derive(Default)]
struct Sample {
    parts: Vec<Part>,
    passages: Vec<SampledPassage>,
    read_seconds: f64,
    parse_seconds: f64,
}

impl PassageStore {
    /// Estimates the resources of [`PassageStore::build`] from a part of a source.
    ///
    /// # Errors
    /// As [`PassageStore::build`] for the part that it reads.
    pub fn plan(source: &Path, split: Split, options: PlanOptions) -> Result<Plan> {
        Self::plan_files(source, &[source.to_owned()], (None, split), options)
    }

    /// Estimates the resources of [`PassageStore::build_collection`] from a part of a collection.
    ///
    /// # Errors
    /// As [`PassageStore::build_collection`] for the part that it reads; [`Error::Argument`] for files whose lines are no
    /// documents.
    pub fn plan_collection(
        collection: Collection,
        source: &Path,
        split: Split,
        options: PlanOptions,
    ) -> Result<Plan> {
        let files = collection.files(source)?;
        for file in &files {
            if !collection.has_lines(file)? {
                let file = file.display();
                let message =
                    format!("{file}: expected a document on each line for an estimate, found another layout");
                return Err(Error::Argument(message));
            }
        }
        Self::plan_files(source, &files, (Some(collection), split), options)
    }

    /// The estimate for files that hold one page or document a line.
    fn plan_files(
        source: &Path,
        files: &[PathBuf],
        (collection, split): (Option<Collection>, Split),
        options: PlanOptions,
    ) -> Result<Plan> {
        let (mut inputs, mut size) = (Vec::with_capacity(files.len()), 0);
        for path in files {
            let input = Input::open(path)?;
            let lines = Lines { file: InputFile::new(path), collection, split };
            inputs.push((lines, input.position.size(), input.compressed));
            size += input.position.size();
        }
        let mut sample = Sample::default();
        for (lines, own, compressed) in inputs {
            // A file's part of the sample is its share of the bytes.
            let part = |bytes: u64| match size {
                0 => bytes,
                _ => (u128::from(bytes) * u128::from(own)).div_ceil(u128::from(size)) as u64,
            };
            let options =
                PlanOptions { parsed: part(options.parsed), decompressed: part(options.decompressed) };
            let found = if !compressed && own > 0 {
                plain(&lines, options, own)?
            } else {
                streamed(&lines, options)?
            };
            sample.add(found);
        }
        let sum = |of: fn(&Part) -> f64| sample.parts.iter().map(of).sum::<f64>();
        let (disk, counted, parsed) =
            (sum(|part| part.disk as f64), sum(|part| part.pages as f64), sum(|part| part.parsed as f64));
        if counted == 0.0 {
            return Err(Error::Empty { path: source.to_owned(), what: "page" });
        }
        let read = if size == 0 { 1.0 } else { disk / size as f64 };
        let pages = sum(|part| part.pages as f64 * part.scale());
        let described = sum(|part| part.described * part.scale());
        // A store with metadata has a row for each page.
        let rows = if described > 0.0 { FIELD_END_ROW as f64 * pages } else { 0.0 };
        Ok(Plan {
            sampled_pages: parsed as u64,
            counted_pages: counted as u64,
            read,
            complete: read == 1.0 && parsed == counted,
            pages: pages.round() as u64,
            pages_error: if read == 1.0 { 0.0 } else { error(&sample.parts, pages) },
            passages: sum(|part| part.passages * part.scale()).round() as u64,
            disk_bytes: (sum(|part| part.bytes * part.scale()) + rows).round() as u64,
            memory_bytes: FIXED_MEMORY + pages as u64 * MEMORY_A_PAGE,
            seconds: sample.read_seconds / read + sample.parse_seconds / parsed * pages,
            sample: sample.passages,
        })
    }
}

impl Sample {
    fn add(&mut self, other: Self) {
        self.parts.extend(other.parts);
        self.passages.extend(other.passages);
        self.read_seconds += other.read_seconds;
        self.parse_seconds += other.parse_seconds;
    }
}

impl Part {
    /// The factor from its counts to its share.
    fn scale(&self) -> f64 {
        if self.disk == 0 { 1.0 } else { self.share / self.disk as f64 }
    }
}

/// The relative standard error of `pages`, a sum over parts, as a ratio to their bytes (W. G. Cochran, "Sampling
/// Techniques", 1977, section 2.11).
fn error(parts: &[Part], pages: f64) -> f64 {
    let count = parts.len() as f64;
    if count < 2.0 {
        return 1.0;
    }
    let rate = pages / parts.iter().map(|part| part.share).sum::<f64>();
    let residual = |part: &Part| part.pages as f64 * part.scale() - rate * part.share;
    let squares: f64 = parts.iter().map(|part| residual(part).powi(2)).sum();
    (squares * count / (count - 1.0)).sqrt() / pages
}

/// Reads a source from its beginning; of a compressed one as much as the options request.
fn streamed(source: &Lines, options: PlanOptions) -> Result<Sample> {
    let mut reader = jsonl::open(&*source.file)?;
    let mut sample = Sample::default();
    let mut chunk = Chunk::default();
    let (mut text, mut disk) = (0, 0);
    let mut more = true;
    // Without a size there is nothing to extrapolate to.
    let sized = reader.position().size() > 0;
    while more && (!sized || text < options.decompressed || text < options.parsed) {
        let start = Instant::now();
        more = reader.next_chunk(&mut chunk)?;
        sample.read_seconds += start.elapsed().as_secs_f64();
        let stride = if text < options.parsed { 1 } else { STRIDE };
        let start = Instant::now();
        let size = |line, bytes: &[u8]| source.size(line, bytes);
        let mut part = measure(chunk.par_lines(), stride, size, &mut sample.passages)?;
        sample.parse_seconds += start.elapsed().as_secs_f64();
        // At the end the whole file counts as read, including bytes after its last line.
        let position = reader.position();
        let now = if more { position.read() } else { position.size().max(position.read()) };
        (part.disk, disk) = (now - disk, now);
        text += chunk.len() as u64;
        sample.parts.push(part);
    }
    // The unread rest is assumed to be like the sample.
    let scale = reader.position().size() as f64 / disk.max(1) as f64;
    for part in &mut sample.parts {
        part.share = part.disk as f64 * if more { scale } else { 1.0 };
    }
    Ok(sample)
}

/// Reads a plain source in evenly spaced windows: the lines that start in them, so that a line's length does
/// not affect its probability.
fn plain(source: &Lines, options: PlanOptions, size: u64) -> Result<Sample> {
    let path = &*source.file;
    let failed = |error| Error::io(path, "read", error);
    let mut sample = Sample::default();
    let mut file = BufReader::new(File::open(path).map_err(|error| Error::io(path, "open", error))?);
    let mut line = Vec::new();
    for at in 0..PARTS {
        let edge = |at: u64| (u128::from(size) * u128::from(at) / u128::from(PARTS)) as u64;
        let (first, next) = (edge(at), edge(at + 1));
        let end = next.min(first + options.parsed.div_ceil(PARTS));
        let start = Instant::now();
        let mut offset = first;
        file.seek(SeekFrom::Start(first.saturating_sub(1))).map_err(failed)?;
        if first > 0 {
            // A line that started before the window is skipped, unless the byte before ends one.
            line.clear();
            offset = first - 1 + file.read_until(b'\n', &mut line).map_err(failed)? as u64;
        }
        let from = offset;
        let (mut lines, mut number) = (Vec::new(), 0);
        while offset < end {
            line.clear();
            let read = file.read_until(b'\n', &mut line).map_err(failed)?;
            if read == 0 {
                break;
            }
            (offset, number) = (offset + read as u64, number + 1);
            // A byte order mark is no part of the first line.
            let mark = if offset == read as u64 { "\u{feff}".as_bytes() } else { b"" };
            let text = line.strip_prefix(mark).unwrap_or(&line);
            if !text.trim_ascii().is_empty() {
                lines.push((number, text.to_owned()));
            }
        }
        sample.read_seconds += start.elapsed().as_secs_f64();
        let start = Instant::now();
        let passages = &mut sample.passages;
        let mut measured = |before: u64| {
            let lines = lines.par_iter().map(|(number, bytes)| (before + number, bytes.as_slice()));
            measure(lines, 1, |line, bytes| source.size(line, bytes), passages)
        };
        // Only a failure pays for counting the lines before it.
        let mut part = match measured(0) {
            Ok(part) => part,
            Err(_) => measured(lines_before(path, from)?)?,
        };
        sample.parse_seconds += start.elapsed().as_secs_f64();
        (part.disk, part.share) = (end - first, (next - first) as f64);
        sample.parts.push(part);
    }
    Ok(sample)
}

/// Measures every `stride`-th of some lines and assumes the others to be like them. Adds the passages of a few pages to
/// `sample`.
fn measure<'a>(
    lines: impl IndexedParallelIterator<Item = (u64, &'a [u8])>,
    stride: usize,
    size: impl Fn(u64, &[u8]) -> Result<LineSize> + Sync + Send,
    sample: &mut Vec<SampledPassage>,
) -> Result<Part> {
    let pages = lines.len() as u64;
    let every = lines.len().div_ceil(stride).div_ceil(SAMPLED_PAGES).max(1);
    let measured = lines.step_by(stride).enumerate().map(|(at, (line, bytes))| {
        let mut found = size(line, bytes)?;
        if !at.is_multiple_of(every) {
            found.sample = Vec::new();
        }
        Ok(found)
    });
    let sizes: Vec<Result<LineSize>> = measured.collect();
    let mut part = Part { pages, ..Part::default() };
    for size in sizes {
        let LineSize { passages, bytes, is_described, sample: mut found } = size?;
        sample.append(&mut found);
        part.parsed += 1;
        part.passages += passages as f64;
        part.bytes += bytes as f64;
        part.described += f64::from(u8::from(is_described));
    }
    let scale = part.pages as f64 / part.parsed.max(1) as f64;
    (part.passages, part.bytes) = (part.passages * scale, part.bytes * scale);
    part.described *= scale;
    Ok(part)
}

fn lines_before(source: &Path, offset: u64) -> Result<u64> {
    let file = File::open(source).map_err(|error| Error::io(source, "open", error))?;
    let mut file = BufReader::with_capacity(jsonl::BUFFER, std::io::Read::take(file, offset));
    let mut lines = 0;
    loop {
        let bytes = file.fill_buf().map_err(|error| Error::io(source, "read", error))?;
        if bytes.is_empty() {
            return Ok(lines);
        }
        lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
        let length = bytes.len();
        file.consume(length);
    }
}

/// The number of passages of one line of a source, and its bytes in a store without the row of its metadata: all
/// processing of a build except writing.
///
/// # Errors
/// [`Error::Utf8`] and [`Error::Record`], with `path` and `line`.
pub fn size_of_line(path: &Path, line: u64, bytes: &[u8], split: Split) -> Result<(u64, u64)> {
    let lines = Lines { file: InputFile::new(path), collection: None, split };
    lines.size(line, bytes).map(|size| (size.passages, size.bytes))
}

/// A file that holds one page or document a line.
struct Lines {
    file: InputFile,
    /// The format of documents; none for pages.
    collection: Option<Collection>,
    split: Split,
}

/// The size of one line of a source in a store.
struct LineSize {
    passages: u64,
    bytes: u64,
    /// Whether the page has metadata.
    is_described: bool,
    /// Some of its passages.
    sample: Vec<SampledPassage>,
}

impl Lines {
    /// The size of a line's page in a store.
    fn size(&self, line: u64, bytes: &[u8]) -> Result<LineSize> {
        let Self { file, collection, split } = self;
        let splitter = &(*split).into();
        let page = match collection {
            None => prepare(file, line, bytes, splitter)?,
            Some(collection) => {
                prepare_page(file, line, collection.document(file, line, bytes)?.into(), splitter)?
            }
        };
        let rows = PAGE_ROW + ID_ROW + TITLE_ROW + page.spans.len() * PASSAGE_ROW + page.ends.len() * 4;
        let texts = page.text.len() + page.id.len() + page.title.len() + page.fields.len();
        let paragraph = |number: u32| {
            let at = number as usize;
            let start = if at == 0 { 0 } else { page.ends[at - 1] };
            &page.text[start as usize..page.ends[at] as usize]
        };
        let some = page.spans.iter().step_by(page.spans.len().div_ceil(SAMPLED_PASSAGES).max(1));
        let text = |span: &Span| passage::text(*span, split.list_items(), paragraph);
        let sample = some.map(|span| (page.title.clone(), text(span))).collect();
        Ok(LineSize {
            passages: page.spans.len() as u64,
            bytes: (texts + rows) as u64,
            is_described: !page.fields.is_empty(),
            sample,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{jsonl::Writer, store::BuildOptions};

    /// Pages of increasing length, with that many kilobytes of text.
    fn source(folder: &Path, name: &str, pages: usize) -> std::path::PathBuf {
        let path = folder.join(name);
        let mut writer = Writer::create(&path).unwrap();
        for page in 0..pages {
            let text = format!("w{:x} ", page.wrapping_mul(2_654_435_761)).repeat(1 + page / 50);
            let line = format!(
                r#"{{"wikipedia_id":"{page}","wikipedia_title":"Page {page}","text":["T","{text}"]}}"#
            );
            writer.line(line.as_bytes()).unwrap();
        }
        writer.finish().unwrap();
        path
    }

    #[test]
    fn a_plain_source_is_sampled_over_its_whole_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = source(folder.path(), "pages.jsonl", 6_000);
        let size = std::fs::metadata(&path).unwrap().len();
        let options = PlanOptions { parsed: size / 5, ..PlanOptions::default() };
        let plan = PassageStore::plan(&path, Split::Words, options).unwrap();
        assert!(!plan.complete && (plan.read - 0.2).abs() < 0.01, "{plan:?}");
        // The first fifth of the bytes alone would give about twice as many.
        assert!(plan.pages.abs_diff(6_000) < 300, "{plan:?}");
        assert!(plan.pages.abs_diff(6_000) as f64 <= 2.0 * plan.pages_error * 6_000.0, "{plan:?}");
        let exact = PassageStore::plan(&path, Split::Words, PlanOptions { parsed: size, ..options }).unwrap();
        assert!(exact.complete && exact.pages == 6_000 && exact.pages_error == 0.0, "{exact:?}");
        // The sample has passages of all parts.
        let titles: std::collections::BTreeSet<&str> =
            plan.sample.iter().map(|(title, _)| title.as_str()).collect();
        assert!(titles.len() > 500 && titles.contains("Page 0"), "{}", titles.len());
        assert!(plan.sample.iter().all(|(_, text)| text.starts_with('w')));
        assert!(plan.passages.abs_diff(exact.passages) < exact.passages / 10, "{plan:?} {exact:?}");
    }

    #[test]
    fn the_files_of_a_collection_are_sampled_by_their_sizes() {
        let folder = tempfile::tempdir().unwrap();
        let mut documents = 0;
        for (name, count) in [("a.jsonl", 900), ("b.jsonl.gz", 300), ("c.jsonl", 5)] {
            let mut writer = Writer::create(folder.path().join(name)).unwrap();
            for at in 0..count {
                let text = format!("word{at} ").repeat(1 + at / 20);
                writer.line(format!(r#"{{"id":"{name} {at}","contents":"{text}"}}"#).as_bytes()).unwrap();
            }
            writer.finish().unwrap();
            documents += count as u64;
        }
        let plan = |options| {
            PassageStore::plan_collection(Collection::Anserini, folder.path(), Split::Words, options).unwrap()
        };
        let exact = plan(PlanOptions::default());
        assert!(exact.complete && exact.pages == documents, "{exact:?}");
        let build = BuildOptions { source: folder.path().into(), redirects: None, split: Split::Words };
        let place = folder.path().join(".store");
        let store =
            PassageStore::build_collection(Collection::Anserini, &build, None, place, &mut |_| {}).unwrap();
        assert_eq!(exact.passages, store.len() as u64);
        let size = std::fs::metadata(folder.path().join("a.jsonl")).unwrap().len();
        let part = plan(PlanOptions { parsed: size / 4, ..PlanOptions::default() });
        assert!(!part.complete && part.pages.abs_diff(documents) < documents / 10, "{part:?}");

        let array = folder.path().join("d.json");
        std::fs::write(&array, "[\n{\"id\":\"a\",\"contents\":\"x\"}\n]").unwrap();
        let refused =
            PassageStore::plan_collection(Collection::Anserini, &array, Split::Words, PlanOptions::default());
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("d.json: expected a document on each line"), "{message}");
    }

    #[test]
    fn pages_of_a_compressed_source_are_counted_and_few_of_them_parsed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["pages.jsonl.gz", "pages.jsonl.zst"] {
            let path = source(folder.path(), name, 12_000);
            let all = PlanOptions { parsed: 1 << 20, ..PlanOptions::default() };
            let plan = PassageStore::plan(&path, Split::Words, all).unwrap();
            assert_eq!((plan.pages, plan.counted_pages, plan.read), (12_000, 12_000, 1.0));
            assert!(!plan.complete && plan.sampled_pages < 9_000, "{plan:?}");
            let exact =
                PassageStore::plan(&path, Split::Words, PlanOptions { parsed: 1 << 30, ..all }).unwrap();
            assert!(exact.complete && plan.passages.abs_diff(exact.passages) < exact.passages / 50);
        }
        // Only the beginning is read: an estimate, which says so.
        let path = folder.path().join("pages.jsonl.gz");
        let plan =
            PassageStore::plan(&path, Split::Words, PlanOptions { parsed: 1 << 20, decompressed: 8 << 20 })
                .unwrap();
        assert!(plan.read < 1.0 && plan.pages > plan.counted_pages && plan.pages_error > 0.0, "{plan:?}");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_page() {
        let folder = tempfile::tempdir().unwrap();
        let path = source(folder.path(), "pages.jsonl", 3);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("\u{feff}{text}")).unwrap();
        let plan = PassageStore::plan(&path, Split::Words, PlanOptions::default()).unwrap();
        assert_eq!((plan.pages, plan.passages), (3, 3));
    }

    #[test]
    fn an_invalid_page_is_reported_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = source(folder.path(), "pages.jsonl", 3_000);
        let mut lines: Vec<String> =
            std::fs::read_to_string(&path).unwrap().lines().map(Into::into).collect();
        lines[1_999] = "{}".into();
        std::fs::write(&path, lines.join("\n")).unwrap();
        let message =
            PassageStore::plan(&path, Split::Words, PlanOptions::default()).unwrap_err().to_string();
        assert!(message.contains("pages.jsonl:2000"), "{message}");
    }
}
