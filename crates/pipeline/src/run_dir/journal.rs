//! The journal of a step, from which a killed run resumes.
//!
//! A journal is a text file. Its header has the step's key. Each finished chunk has a line: a checksum, the chunk's number, the
//! number of finished records including the chunk, and the chunk as JSON. A line is on disk before the next chunk begins. The
//! checksum covers key, number, count and JSON. A truncated, damaged or misplaced line is dropped with all lines after it, and
//! their chunks are computed again. Chunks are the same in every run, so nothing is missing or repeated.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Error, Result};

/// The version of the format. A journal of another version is discarded.
const VERSION: u32 = 2;

/// An open journal.
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    key: String,
    chunks: usize,
    records: usize,
}

#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    key: String,
    /// The number of records of the step, if known.
    total: Option<usize>,
}

/// The progress of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// The number of finished records.
    pub(crate) records: usize,
    /// The number of records of the step, if known.
    pub(crate) total: Option<usize>,
}

impl Journal {
    /// Opens the journal of a step. `total` is its number of records, if known. Discards a journal with another key.
    pub(crate) fn open(path: &Path, key: &str, total: Option<usize>) -> Result<Self> {
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
        let read = reader.read_until(b'\n', &mut line).map_err(fail("read"))?;
        let is_known = header(&line).is_some_and(|header| header.version == VERSION && header.key == key);
        let mut kept = if is_known { read as u64 } else { 0 };
        let (mut chunks, mut records) = (0, 0);
        if is_known {
            loop {
                line.clear();
                let read = reader.read_until(b'\n', &mut line).map_err(fail("read"))?;
                let Some((finished, _)) = chunk(&line, key, chunks) else {
                    // A kill leaves a line without a line break. Another invalid line is damaged.
                    if line.ends_with(b"\n") {
                        tracing::warn!(
                            "{}: line {} is damaged; its records and all later ones are computed again",
                            path.display(),
                            chunks + 2
                        );
                    }
                    break;
                };
                (chunks, records) = (chunks + 1, finished);
                kept += read as u64;
            }
        }
        file.set_len(kept).map_err(fail("write"))?;
        file.seek(SeekFrom::Start(kept)).map_err(fail("write"))?;
        let mut journal = Self { path: path.to_owned(), file, key: key.to_owned(), chunks, records };
        if !is_known {
            let header = Header { version: VERSION, key: key.to_owned(), total };
            journal.line(&journal.json(&header)?)?;
        }
        Ok(journal)
    }

    /// The progress of a journal, which another process may be writing; `None` if the file is not a journal.
    pub(crate) fn progress(path: &Path) -> Option<Finished> {
        let mut reader = BufReader::new(File::open(path).ok()?);
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line).ok()?;
        let Header { key, total, .. } = header(&line).filter(|header| header.version == VERSION)?;
        let (mut chunks, mut records) = (0, 0);
        loop {
            line.clear();
            reader.read_until(b'\n', &mut line).ok()?;
            let Some((finished, _)) = chunk(&line, &key, chunks) else { break };
            (chunks, records) = (chunks + 1, finished);
        }
        Some(Finished { records, total })
    }

    /// The number of finished chunks.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks
    }

    /// The number of finished records.
    #[cfg(test)]
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// Adds a finished chunk of `records` records.
    pub(crate) fn push(&mut self, chunk: &impl Serialize, records: usize) -> Result<()> {
        let records = self.records + records;
        let json = self.json(chunk)?;
        let mut line =
            format!("{} {} {records} ", checksum(&self.key, self.chunks, records, &json), self.chunks)
                .into_bytes();
        line.extend(json);
        self.line(&line)?;
        self.chunks += 1;
        self.records = records;
        Ok(())
    }

    fn json(&self, value: &impl Serialize) -> Result<Vec<u8>> {
        serde_json::to_vec(value).map_err(|error| Error::io(&self.path, "write")(error.into()))
    }

    fn line(&mut self, line: &[u8]) -> Result<()> {
        let line = [line, b"\n"].concat();
        self.file.write_all(&line).map_err(Error::io(&self.path, "write"))?;
        self.file.sync_data().map_err(Error::io(&self.path, "write"))
    }

    /// Calls `each` with the finished chunks, in order.
    ///
    /// # Errors
    /// [`Error::Io`] if a line has changed since the journal was opened.
    pub(crate) fn read<T: DeserializeOwned>(&self, mut each: impl FnMut(T) -> Result<()>) -> Result<()> {
        let fail = |action| Error::io(&self.path, action);
        let mut reader = BufReader::new(File::open(&self.path).map_err(fail("open"))?);
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line).map_err(fail("read"))?;
        for number in 0..self.chunks {
            line.clear();
            reader.read_until(b'\n', &mut line).map_err(fail("read"))?;
            let damaged = || {
                let message = format!("line {} was changed while the journal was in use", number + 2);
                Error::io(&self.path, "read")(std::io::Error::other(message))
            };
            let (_, json) = chunk(&line, &self.key, number).ok_or_else(damaged)?;
            each(serde_json::from_slice(json).map_err(|_| damaged())?)?;
        }
        Ok(())
    }

    /// Removes the journal after its results are written, or if they must not be used.
    pub(crate) fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(Error::io(&self.path, "remove"))
    }
}

fn header(line: &[u8]) -> Option<Header> {
    line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok())
}

/// The number of finished records and the JSON of a line; `None` if the line is not chunk `number`.
fn chunk<'l>(line: &'l [u8], key: &str, number: usize) -> Option<(usize, &'l [u8])> {
    let line = line.strip_suffix(b"\n")?;
    let mut parts = line.splitn(4, |&byte| byte == b' ');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let (sum, found, records) = (text()?, text()?, text()?.parse().ok()?);
    let json = parts.next()?;
    let is_whole = found == number.to_string() && sum == checksum(key, number, records, json);
    is_whole.then_some((records, json))
}

/// 128 bits of BLAKE3, in hexadecimal.
fn checksum(key: &str, number: usize, records: usize, json: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{VERSION} {key} {number} {records} ").as_bytes());
    hasher.update(json);
    hasher.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

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

    /// A step of eight chunks that resumes from its journal.
    fn complete(path: &Path) -> Vec<Vec<u32>> {
        let mut journal = Journal::open(path, "key", Some(24)).unwrap();
        for number in journal.chunks()..8 {
            let first = 100 * number as u32;
            journal.push(&vec![first, first + 1, first + 2], 3).unwrap();
        }
        assert_eq!(journal.records(), 24);
        chunks(&journal)
    }

    #[test]
    fn a_journal_keeps_whole_chunks_whatever_byte_a_kill_left_it_at() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let mut journal = Journal::open(&path, "a", None).unwrap();
        journal.push(&vec![1u32, 2], 2).unwrap();
        let first = fs::metadata(&path).unwrap().len();
        journal.push(&vec![3u32], 1).unwrap();
        assert_eq!(Journal::progress(&path), Some(Finished { records: 3, total: None }));
        drop(journal);
        let bytes = fs::read(&path).unwrap();
        for cut in 0..=bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let mut journal = Journal::open(&path, "a", None).unwrap();
            let whole = if cut == bytes.len() { 2 } else { usize::from(cut as u64 >= first) };
            assert_eq!((journal.chunks(), journal.records()), (whole, [0, 2, 3][whole]), "cut at {cut}");
            assert_eq!(chunks(&journal), [vec![1, 2], vec![3]][..whole]);
            journal.push(&vec![9u32], 1).unwrap();
            assert_eq!(chunks(&journal).last(), Some(&vec![9]));
        }
    }

    #[test]
    fn a_journal_of_another_key_or_version_starts_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        Journal::open(&path, "a", Some(5)).unwrap().push(&1, 1).unwrap();
        assert_eq!(Journal::progress(&path), Some(Finished { records: 1, total: Some(5) }));
        assert_eq!(Journal::open(&path, "b", None).unwrap().chunks(), 0);
        assert_eq!(Journal::open(&path, "a", None).unwrap().chunks(), 0);
        fs::write(&path, "{\"key\":\"a\"}\n[1,2]\n").unwrap();
        assert_eq!(Journal::open(&path, "a", None).unwrap().chunks(), 0);
        assert_eq!(Journal::progress(&folder.path().join("none")), None);
    }

    /// A mutation of bytes: flipped bits, changed bytes, lines that are swapped, doubled or missing, cuts, insertions.
    fn mutated(bytes: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let at = rng.random_range(0..bytes.len());
        let mut lines: Vec<Vec<u8>> =
            bytes.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
        let (one, two) = (rng.random_range(0..lines.len()), rng.random_range(0..lines.len()));
        match rng.random_range(0..8) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = b"0123456789 \n\r{}[],\""[rng.random_range(0..19)],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, rng.random()),
            4 => drop(bytes.remove(at)),
            5 => {
                lines.swap(one, two);
                bytes = lines.concat();
            }
            6 => {
                lines.insert(one, lines[two].clone());
                bytes = lines.concat();
            }
            _ => {
                lines.remove(one);
                bytes = lines.concat();
            }
        }
        bytes
    }

    #[test]
    fn no_damage_to_a_journal_changes_what_comes_of_the_step() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let expected = complete(&path);
        assert_eq!(expected.len(), 8);
        let whole = fs::read(&path).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(16);
        let mut damaged = 0;
        for _ in 0..600 {
            // A line that a kill truncated, then another change.
            let cut = rng.random_range(whole.len() / 4..=whole.len());
            let mut bytes = mutated(&whole[..cut], &mut rng);
            if rng.random_bool(0.3) && !bytes.is_empty() {
                bytes = mutated(&bytes, &mut rng);
            }
            damaged += usize::from(bytes != whole[..cut]);
            fs::write(&path, &bytes).unwrap();
            assert_eq!(complete(&path), expected, "{:?}", String::from_utf8_lossy(&bytes));
        }
        assert!(damaged > 500, "{damaged}");
    }

    #[test]
    fn a_line_of_another_journal_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("j"), folder.path().join("k"));
        complete(&path);
        let mut journal = Journal::open(&other, "another", None).unwrap();
        journal.push(&vec![7u32], 3).unwrap();
        let (own, other) = (fs::read_to_string(&path).unwrap(), fs::read_to_string(&other).unwrap());
        let mixed = format!("{}\n{}\n", own.lines().next().unwrap(), other.lines().nth(1).unwrap());
        fs::write(&path, mixed).unwrap();
        assert_eq!(Journal::open(&path, "key", None).unwrap().chunks(), 0);
    }
}
