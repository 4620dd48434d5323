//! The pages of an earlier collection, which are taken over for files that have not changed.

use std::{
    fs,
    io::{self, Read, Seek, SeekFrom},
    path::PathBuf,
};

use rustc_hash::FxHashMap;
use serde::Deserialize;
use sporran_kilt::{Error as FileError, jsonl};

use super::{
    Collection, Entry,
    output::{Out, failed},
    pages::{Key, Part, Seen},
};
use crate::{Result, SourceFile};

/// The pages of the earlier collection.
pub(super) struct Earlier {
    pub(super) entries: FxHashMap<String, Entry>,
    path: PathBuf,
    pages: Option<fs::File>,
}

impl Earlier {
    pub(super) fn open(earlier: &[Collection]) -> Result<Self> {
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

    /// The keys of the pages of an entry. That of a document has only its id.
    fn keys(&self, entry: &Entry, file: &SourceFile, frame: impl Read) -> Result<Vec<Key>> {
        if !entry.own_ids {
            return Ok(if entry.pages == 1 { vec![Key::new(&file.id, "", &[])] } else { Vec::new() });
        }
        #[derive(Deserialize)]
        struct Named {
            wikipedia_id: sporran_kilt::Id,
            wikipedia_title: String,
            text: Vec<String>,
        }
        let input = jsonl::InputFile::new(&self.path);
        let failed = |error| FileError::io(&self.path, "read", error);
        let lines = io::BufReader::new(zstd::Decoder::new(frame).map_err(failed)?);
        let keys = io::BufRead::lines(lines).enumerate().map(|(at, line)| {
            let line = line.map_err(failed)?;
            let named: Named = jsonl::parse(&input, at as u64 + 1, line.as_bytes())?;
            Ok(Key::new(&named.wikipedia_id.text(), &named.wikipedia_title, &named.text))
        });
        keys.collect()
    }

    /// The pages of a small file.
    pub(super) fn part(&self, file: &SourceFile) -> Result<Option<Part>> {
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
        let keys = self.keys(entry, file, &frame[..])?.into_iter().map(Some).collect();
        Ok(Some(Part {
            lines: Vec::new(),
            ends: Vec::new(),
            keys,
            frame,
            entry: entry.clone(),
            is_old: true,
        }))
    }

    /// Copies the pages of a large file.
    pub(super) fn whole(&self, file: &SourceFile, out: &mut Out, seen: &mut Seen) -> Result<Option<Entry>> {
        let Some(entry) = self.entry(file) else { return Ok(None) };
        let keys = self.keys(entry, file, self.frame(entry)?)?;
        if keys.iter().any(|key| seen.has_id(key)) {
            return Ok(None);
        }
        seen.add(keys);
        let copy = Entry { start: out.bytes, ..entry.clone() };
        io::copy(&mut self.frame(entry)?, out).map_err(failed(&out.path))?;
        Ok(Some(copy))
    }
}
