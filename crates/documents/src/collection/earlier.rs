//! The pages of an earlier collection, which are taken over for files that have not changed.

use std::{
    fs,
    io::{self, Read, Seek, SeekFrom},
    path::PathBuf,
};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Deserialize;
use sporran_kilt::{Error as FileError, jsonl};

use super::{
    Collection, Entry,
    output::{Out, failed},
    pages::{Part, id_hash},
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
        let ids = self.ids(entry, file, &frame[..])?.into_iter().map(Some).collect();
        Ok(Some(Part { lines: Vec::new(), ends: Vec::new(), ids, frame, entry: entry.clone(), is_old: true }))
    }

    /// Copies the pages of a large file.
    pub(super) fn whole(
        &self,
        file: &SourceFile,
        out: &mut Out,
        seen: &mut FxHashSet<u128>,
    ) -> Result<Option<Entry>> {
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
