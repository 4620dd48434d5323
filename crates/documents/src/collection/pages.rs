//! The pages of a file, as a frame of a collection.

use std::io::Write as _;

use rustc_hash::FxHashSet;
use sporran_kilt::{Page, counted, hash_id};

use super::{
    Entry,
    output::{Out, failed},
};
use crate::{
    Options, Problem, Result, Severity, SourceFile,
    read::{Unread, read},
    record::{IdOf, RecordPage},
};

const LEVEL: i32 = 1;

/// The hash by which ids are compared.
fn id_hash(id: &str) -> u128 {
    hash_id(id.trim())
}

/// By what a page is compared with those before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// The hash of the id.
    pub(super) id: u128,
    /// The hash of id, title and text.
    whole: u64,
    /// The record's number in its file, if its id names it there only.
    row: Option<u64>,
}

impl Key {
    /// The key of a page whose id names it in the whole source.
    pub(super) fn new(id: &str, title: &str, text: &[String]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in [id.trim(), title].into_iter().chain(text.iter().map(String::as_str)) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let hash = hasher.finalize();
        let bytes: &[u8; 8] = hash.as_bytes().first_chunk().unwrap_or(&[0; 8]);
        Self { id: id_hash(id), whole: u64::from_le_bytes(*bytes), row: None }
    }

    /// The key of a page; `None` for the number of a record, which no other page has as its id.
    fn of(page: &RecordPage, file: &SourceFile) -> Option<Self> {
        let row = match page.id {
            IdOf::Row(number) => Some(number),
            IdOf::Place if *page.page.wikipedia_id.text() != file.id => return None,
            IdOf::Place | IdOf::Source => None,
        };
        let Page { wikipedia_id, wikipedia_title, text, .. } = &page.page;
        Some(Self { row, ..Self::new(&wikipedia_id.text(), wikipedia_title, text) })
    }
}

/// The ids of the pages so far, as hashes.
#[derive(Debug, Default)]
pub(super) struct Seen {
    ids: FxHashSet<u128>,
    wholes: FxHashSet<u64>,
}

impl Seen {
    /// Whether a page has the id of this key.
    pub(super) fn has_id(&self, key: &Key) -> bool {
        self.ids.contains(&key.id)
    }

    /// Adds keys.
    pub(super) fn add(&mut self, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            self.ids.insert(key.id);
            self.wholes.insert(key.whole);
        }
    }

    fn join(&mut self, other: Self) {
        self.ids.extend(other.ids);
        self.wholes.extend(other.wholes);
    }
}

/// What becomes of a record.
enum Fate {
    Kept,
    /// Another record has its id: this is its new one.
    Renamed(String),
    Left,
}

/// The records of a file that have the id of an earlier one.
#[derive(Default)]
struct Doubles {
    /// Those that were left out.
    left: u64,
    /// Those that were left out because they are wholly equal to an earlier one.
    equal: u64,
    /// Those that have another id.
    renamed: u64,
}

impl Doubles {
    /// What becomes of a record. `seen` are the pages of earlier files, `within` those of this one.
    fn judge(&mut self, key: &Key, file: &SourceFile, seen: &Seen, within: &mut Seen) -> Fate {
        let is_equal = !within.wholes.insert(key.whole) || seen.wholes.contains(&key.whole);
        if !seen.has_id(key) && within.ids.insert(key.id) {
            return Fate::Kept;
        }
        let Some(row) = key.row else {
            self.left += 1;
            return Fate::Left;
        };
        if is_equal {
            self.equal += 1;
            return Fate::Left;
        }
        let name = format!("{}#{row}", file.id);
        let (mut id, mut number) = (name.clone(), 2);
        while seen.ids.contains(&id_hash(&id)) || !within.ids.insert(id_hash(&id)) {
            id = format!("{name}#{number}");
            number += 1;
        }
        self.renamed += 1;
        Fate::Renamed(id)
    }

    fn is_empty(&self) -> bool {
        self.left + self.equal + self.renamed == 0
    }

    /// What is told of them.
    fn problems(&self, file: &SourceFile) -> impl Iterator<Item = Problem> {
        let Self { left, equal, renamed } = *self;
        let pick = |count: u64, one: &'static str, more: &'static str| if count == 1 { one } else { more };
        let have = |count: u64| {
            format!(
                "{} {} an id that an earlier record has",
                counted(count, "record"),
                pick(count, "has", "have")
            )
        };
        let told = [
            (
                left,
                Severity::Partial,
                format!("{}; {} not read", have(left), pick(left, "it was", "they were")),
            ),
            (
                equal,
                Severity::Note,
                format!(
                    "{}, and its title and text; {} left out",
                    have(equal),
                    pick(equal, "it is", "they are")
                ),
            ),
            (
                renamed,
                Severity::Note,
                format!(
                    "{}; the id of {} is the file and the number of the row",
                    have(renamed),
                    pick(renamed, "it", "each")
                ),
            ),
        ];
        let name = file.file.clone();
        told.into_iter().filter(|(count, ..)| *count > 0).map(move |(_, severity, message)| Problem {
            file: name.clone(),
            line: None,
            severity,
            message,
        })
    }
}

/// The pages of a small file.
pub(super) struct Part {
    /// The pages as lines; empty if they are taken over.
    pub(super) lines: Vec<u8>,
    /// The end of each line.
    pub(super) ends: Vec<usize>,
    /// The keys of the pages; none for numbered records.
    pub(super) keys: Vec<Option<Key>>,
    pub(super) frame: Vec<u8>,
    pub(super) entry: Entry,
    pub(super) is_old: bool,
}

impl Part {
    pub(super) fn read(file: &SourceFile, options: &Options) -> Result<Self> {
        let (mut lines, mut ends, mut keys, mut own_ids) = (Vec::new(), Vec::new(), Vec::new(), false);
        let unread = read(file, options, &mut |page| {
            serde_json::to_writer(&mut lines, &page.page)
                .map_err(|error| failed(&file.path)(error.into()))?;
            lines.push(b'\n');
            ends.push(lines.len());
            keys.push(Key::of(&page, file));
            own_ids |= page.id != IdOf::Place;
            Ok(())
        })?;
        if unread.has_changed {
            (lines, ends, keys, own_ids) = (Vec::new(), Vec::new(), Vec::new(), false);
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
        Ok(Self { lines, ends, keys, frame, entry, is_old: false })
    }

    /// Writes the pages. A record with the id of an earlier one gets another id, or is left out.
    pub(super) fn write(
        self,
        file: &SourceFile,
        options: &Options,
        out: &mut Out,
        seen: &mut Seen,
    ) -> Result<(Entry, bool)> {
        if self.is_old && self.keys.iter().flatten().any(|key| seen.has_id(key)) {
            return Self::read(file, options)?.write(file, options, out, seen);
        }
        let (mut within, mut doubles) = (Seen::default(), Doubles::default());
        let fates: Vec<Fate> = self
            .keys
            .iter()
            .map(|key| match key {
                Some(key) => doubles.judge(key, file, seen, &mut within),
                None => Fate::Kept,
            })
            .collect();
        let Self { lines, ends, mut frame, mut entry, is_old, .. } = self;
        if !doubles.is_empty() {
            let mut kept = Vec::with_capacity(lines.len());
            let starts = std::iter::once(0).chain(ends.iter().copied());
            for ((start, &end), fate) in starts.zip(&ends).zip(fates) {
                let line = &lines[start..end];
                match fate {
                    Fate::Kept => kept.extend_from_slice(line),
                    Fate::Left => {}
                    Fate::Renamed(id) => {
                        let wrong = |error: serde_json::Error| failed(&file.path)(error.into());
                        let mut page: Page = serde_json::from_slice(line).map_err(wrong)?;
                        page.wikipedia_id = id.into();
                        serde_json::to_writer(&mut kept, &page).map_err(wrong)?;
                        kept.push(b'\n');
                    }
                }
            }
            frame = if kept.is_empty() { Vec::new() } else { compressed(&kept, file)? };
            entry.pages -= doubles.left + doubles.equal;
            entry.again = true;
            entry.problems.extend(doubles.problems(file));
        }
        seen.join(within);
        (entry.start, entry.length) = (out.bytes, frame.len() as u64);
        out.put(&frame)?;
        Ok((entry, is_old))
    }
}

fn compressed(lines: &[u8], file: &SourceFile) -> Result<Vec<u8>> {
    Ok(zstd::encode_all(lines, LEVEL).map_err(failed(&file.path))?)
}

/// Reads a large file page by page.
pub(super) fn large(file: &SourceFile, options: &Options, out: &mut Out, seen: &mut Seen) -> Result<Entry> {
    let (start, hasher, path) = (out.bytes, out.hasher.clone(), out.path.clone());
    let mut encoder = zstd::Encoder::new(&mut *out, LEVEL).map_err(failed(&path))?;
    let (mut pages, mut doubles, mut own_ids) = (0, Doubles::default(), false);
    let (mut line, mut within) = (Vec::new(), Seen::default());
    let unread = read(file, options, &mut |mut page| {
        own_ids |= page.id != IdOf::Place;
        if let Some(key) = Key::of(&page, file) {
            match doubles.judge(&key, file, seen, &mut within) {
                Fate::Kept => {}
                Fate::Left => return Ok(()),
                Fate::Renamed(id) => page.page.wikipedia_id = id.into(),
            }
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
        (pages, doubles, own_ids) = (0, Doubles::default(), false);
    } else {
        seen.join(within);
    }
    problems.extend(doubles.problems(file));
    Ok(Entry {
        file: file.file.clone(),
        blake3: file.blake3.clone(),
        start,
        length: out.bytes - start,
        pages,
        own_ids,
        again: !doubles.is_empty() || is_transient,
        has_changed,
        problems,
    })
}
