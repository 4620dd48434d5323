//! Reading many lines at once for parallel parsing.

use std::{
    io::{ErrorKind, Read},
    sync::{Arc, mpsc},
};

use rayon::prelude::*;
use serde::de::DeserializeOwned;

use super::{InputFile, Reader, parse};
use crate::Result;

/// Bytes of lines that one parallel batch holds.
const BATCH: usize = 4 << 20;

/// Whole lines of a file in one allocation.
#[derive(Default)]
pub struct Chunk {
    /// Lines with their ends, then the start of the next chunk's first line, then free space.
    bytes: Vec<u8>,
    /// The number of bytes in this chunk's lines.
    whole: usize,
    /// Number, start and end of each line that is not blank.
    lines: Vec<(u64, usize, usize)>,
}

impl Chunk {
    /// The lines that are not blank with their numbers and without their ends, in order, over all threads.
    pub fn par_lines(&self) -> impl IndexedParallelIterator<Item = (u64, &[u8])> {
        self.lines.par_iter().map(|&(line, start, end)| (line, &self.bytes[start..end]))
    }

    /// Bytes of the lines with their ends.
    pub(crate) fn len(&self) -> usize {
        self.whole
    }
}

/// Records a line unless it is blank. Only the line end is removed: blanks before it may belong to a TSV
/// field.
fn push(lines: &mut Vec<(u64, usize, usize)>, bytes: &[u8], line: u64, start: usize, end: usize) {
    let text = &bytes[start..end];
    if !text.trim_ascii().is_empty() {
        let returns = text.iter().rev().take_while(|&&byte| byte == b'\r').count();
        lines.push((line, start, end - returns));
    }
}

impl Reader {
    /// Replaces a chunk by the next whole lines: at least one, and about a batch. `false` at the end of the
    /// file; after an error the chunk has the lines before it.
    pub(crate) fn next_chunk(&mut self, chunk: &mut Chunk) -> Result<bool> {
        let Chunk { bytes, whole, lines } = chunk;
        lines.clear();
        *whole = 0;
        let mut filled = self.rest.len();
        bytes.resize(bytes.len().max(BATCH).max(filled), 0);
        bytes[..filled].copy_from_slice(&self.rest);
        self.rest.clear();
        let mut outcome = Ok(true);
        while matches!(outcome, Ok(true)) && (filled < bytes.len() || *whole == 0) {
            if filled == bytes.len() {
                // One line is longer than the buffer.
                bytes.resize(2 * filled, 0);
            }
            match self.input.bytes.read(&mut bytes[filled..]) {
                Ok(0) => outcome = Ok(false),
                Ok(read) => {
                    for at in memchr::memchr_iter(b'\n', &bytes[filled..filled + read]) {
                        self.line += 1;
                        push(lines, bytes, self.line, *whole, filled + at);
                        *whole = filled + at + 1;
                    }
                    filled += read;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => outcome = Err(self.failure(error)),
            }
        }
        if matches!(outcome, Ok(false)) && *whole < filled {
            self.line += 1;
            push(lines, bytes, self.line, *whole, filled);
            *whole = filled;
        }
        self.rest.extend_from_slice(&bytes[*whole..filled]);
        outcome
    }

    /// Parses on all threads and passes batches to `each` in the file's order. A batch has about 4 MiB of
    /// lines, so memory is bounded. Reading continues while batches are parsed and processed.
    ///
    /// # Errors
    /// The first error in the file's order, whether from reading, parsing or `each`.
    pub fn batches<T: DeserializeOwned + Send>(
        self,
        mut each: impl FnMut(Vec<(u64, T)>) -> Result<()>,
    ) -> Result<()> {
        self.chunks(|file, chunk| {
            // Collected in order, so that the first error in the file's order is returned.
            let parsed: Vec<Result<(u64, T)>> =
                chunk.par_lines().map(|(line, bytes)| Ok((line, parse(file, line, bytes)?))).collect();
            each(parsed.into_iter().collect::<Result<_>>()?)
        })
    }

    /// Passes chunks of whole lines to `each` in the file's order while the next chunk is read.
    ///
    /// # Errors
    /// The first error, whether from reading or from `each`.
    pub fn chunks(mut self, mut each: impl FnMut(&InputFile, &Chunk) -> Result<()>) -> Result<()> {
        let file = Arc::clone(&self.file);
        let (sender, receiver) = mpsc::sync_channel::<(Chunk, Result<()>)>(1);
        // Processed chunks return to the reader, which reuses their memory.
        let (give_back, spare) = mpsc::channel::<Chunk>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                loop {
                    let mut chunk = spare.try_recv().unwrap_or_default();
                    let more = self.next_chunk(&mut chunk);
                    let last = !matches!(more, Ok(true));
                    // Sending fails only if the receiver stopped after an error.
                    if sender.send((chunk, more.map(|_| ()))).is_err() || last {
                        return;
                    }
                }
            });
            for (chunk, outcome) in receiver {
                if !chunk.lines.is_empty() {
                    each(&file, &chunk)?;
                }
                outcome?;
                // The reader may have finished.
                let _ = give_back.send(chunk);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::jsonl::open;

    /// Line numbers and lines as `chunks` gives them.
    fn chunked(path: &Path) -> Vec<(u64, Vec<u8>)> {
        let mut found = Vec::new();
        let each = |_: &InputFile, chunk: &Chunk| {
            found.extend(chunk.par_lines().map(|(line, bytes)| (line, bytes.to_vec())).collect::<Vec<_>>());
            Ok(())
        };
        open(path).unwrap().chunks(each).unwrap();
        found
    }

    #[test]
    fn chunks_hold_the_lines_that_are_read_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        // Lines across chunk boundaries, a line longer than a chunk, blank lines, CRLF, no line end at the
        // end.
        let mut bytes = Vec::new();
        for at in 0..30_000usize {
            bytes.extend(std::iter::repeat_n(b'a' + (at % 26) as u8, at % 700));
            bytes.extend_from_slice([&b"\n"[..], b"\r\n", b" \n", b"\t\r\r\n"][at % 4]);
            if at == 9_000 {
                bytes.extend(std::iter::repeat_n(b'x', 2 * BATCH + 5));
            }
        }
        bytes.extend_from_slice(b"last ");
        std::fs::write(&path, &bytes).unwrap();
        assert!(bytes.len() > 4 * BATCH);
        let mut expected = Vec::new();
        let mut reader = open(&path).unwrap();
        while let Some((line, bytes)) = reader.next_line().unwrap() {
            expected.push((line, bytes.to_vec()));
        }
        assert_eq!(expected.last().unwrap(), &(30_001, b"last ".to_vec()));
        assert!(chunked(&path) == expected);
    }

    #[test]
    fn a_file_without_lines_gives_no_chunk() {
        let folder = tempfile::tempdir().unwrap();
        for content in ["", "\n\n", " "] {
            let path = folder.path().join("empty");
            std::fs::write(&path, content).unwrap();
            assert!(chunked(&path).is_empty());
        }
    }

    #[test]
    fn an_error_of_the_receiver_ends_the_reading() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let line = "x".repeat(BATCH / 10) + "\n";
        std::fs::write(&path, line.repeat(100)).unwrap();
        let stop = |file: &InputFile, _: &Chunk| Err(crate::Error::record(file, 1, "x", "stop"));
        let message = open(&path).unwrap().chunks(stop).unwrap_err().to_string();
        assert!(message.contains("stop"), "{message}");
    }
}
