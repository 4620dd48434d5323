//! The pages of a file, as a frame of a collection.

use std::io::Write as _;

use rustc_hash::FxHashSet;
use sporran_kilt::counted;

use super::{
    Entry,
    output::{Out, failed},
};
use crate::{
    Options, Problem, Result, Severity, SourceFile,
    read::{Unread, read},
};

const LEVEL: i32 = 1;

/// The hash by which ids are compared.
pub(super) fn id_hash(id: &str) -> u128 {
    let hash = blake3::hash(id.trim().as_bytes());
    let bytes: &[u8; 16] = hash.as_bytes().first_chunk().unwrap_or(&[0; 16]);
    u128::from_le_bytes(*bytes)
}

/// The pages of a small file.
pub(super) struct Part {
    /// The pages as lines; empty if they are taken over.
    pub(super) lines: Vec<u8>,
    /// The end of each line.
    pub(super) ends: Vec<usize>,
    /// The hashes of the ids; none for ids of numbered records, which no other file has.
    pub(super) ids: Vec<Option<u128>>,
    pub(super) frame: Vec<u8>,
    pub(super) entry: Entry,
    pub(super) is_old: bool,
}

impl Part {
    pub(super) fn read(file: &SourceFile, options: &Options) -> Result<Self> {
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
    pub(super) fn write(
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
pub(super) fn large(
    file: &SourceFile,
    options: &Options,
    out: &mut Out,
    seen: &mut FxHashSet<u128>,
) -> Result<Entry> {
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
