//! Finished work of a step, so that a killed run goes on where it stopped.
//!
//! A journal is a text file: a header with the step's key, then one JSON line a finished chunk. A line is on disk
//! before the next chunk begins. A line that was cut off by a kill is dropped; chunks are cut the same way every time,
//! so what is left of the work is exactly what is missing.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, Result};

/// An open journal.
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    chunks: usize,
}

#[derive(Serialize, serde::Deserialize)]
struct Header {
    key: String,
}

impl Journal {
    /// Opens the journal of a step; one of another key is started anew.
    pub(crate) fn open(path: &Path, key: &str) -> Result<Self> {
        let fail = |action| Error::io(path, action);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(fail("open"))?;
        let mut reader = BufReader::new(&mut file);
        let mut line = Vec::new();
        let mut kept = 0u64;
        let mut chunks = 0;
        let mut known = false;
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(fail("read"))?;
            if read == 0 || !line.ends_with(b"\n") {
                break;
            }
            if known {
                if serde_json::from_slice::<serde::de::IgnoredAny>(&line).is_err() {
                    break;
                }
                chunks += 1;
            } else {
                known = serde_json::from_slice::<Header>(&line).is_ok_and(|header| header.key == key);
                if !known {
                    break;
                }
            }
            kept += read as u64;
        }
        file.set_len(kept).map_err(fail("write"))?;
        file.seek(SeekFrom::Start(kept)).map_err(fail("write"))?;
        let mut journal = Self { path: path.to_owned(), file, chunks };
        if !known {
            journal.line(&Header { key: key.to_owned() })?;
        }
        Ok(journal)
    }

    /// How many chunks are finished.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks
    }

    /// Adds a finished chunk.
    pub(crate) fn push(&mut self, chunk: &impl Serialize) -> Result<()> {
        self.line(chunk)?;
        self.chunks += 1;
        Ok(())
    }

    fn line(&mut self, value: &impl Serialize) -> Result<()> {
        let mut line =
            serde_json::to_vec(value).map_err(|error| Error::io(&self.path, "write")(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(Error::io(&self.path, "write"))?;
        self.file.sync_data().map_err(Error::io(&self.path, "write"))
    }

    /// Hands the finished chunks over, in order.
    pub(crate) fn read<T: DeserializeOwned>(&self, mut each: impl FnMut(T) -> Result<()>) -> Result<()> {
        let mut lines = sporran_kilt::jsonl::open(&self.path)?.numbered::<serde_json::Value>();
        lines.next();
        for chunk in lines {
            let (line, chunk) = chunk?;
            let chunk = serde_json::from_value(chunk)
                .map_err(|error| sporran_kilt::Error::record(&self.path, line, ".", error.to_string()))?;
            each(chunk)?;
        }
        Ok(())
    }

    /// Removes the journal once what it held stands in its place.
    pub(crate) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.path).map_err(Error::io(&self.path, "remove"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(journal: &Journal) -> Vec<Vec<u32>> {
        let mut found = Vec::new();
        journal
            .read(|chunk| {
                found.push(chunk);
                Ok(())
            })
            .unwrap();
        found
    }

    #[test]
    fn a_journal_keeps_whole_chunks_whatever_byte_a_kill_left_it_at() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let mut journal = Journal::open(&path, "a").unwrap();
        journal.push(&vec![1u32, 2]).unwrap();
        let first = std::fs::metadata(&path).unwrap().len();
        journal.push(&vec![3u32]).unwrap();
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        for cut in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let mut journal = Journal::open(&path, "a").unwrap();
            let whole = if cut == bytes.len() { 2 } else { usize::from(cut as u64 >= first) };
            assert_eq!(journal.chunks(), whole, "cut at {cut}");
            assert_eq!(chunks(&journal), [vec![1, 2], vec![3]][..whole]);
            journal.push(&vec![9u32]).unwrap();
            assert_eq!(chunks(&journal).last(), Some(&vec![9]));
        }
    }

    #[test]
    fn a_journal_of_another_key_starts_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        Journal::open(&path, "a").unwrap().push(&1).unwrap();
        assert_eq!(Journal::open(&path, "b").unwrap().chunks(), 0);
        assert_eq!(Journal::open(&path, "a").unwrap().chunks(), 0);
    }
}
