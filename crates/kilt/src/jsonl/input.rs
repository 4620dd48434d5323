//! Bytes of plain, gzip and zstd files.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::BUFFER;
use crate::{Error, Result};

/// The progress of reading a file in bytes on disk. It can be observed while the reader is running.
#[derive(Clone, Debug, Default)]
pub struct Position {
    read: Arc<AtomicU64>,
    size: u64,
}

impl Position {
    /// Bytes read so far, compressed ones for a compressed file.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The file's size in bytes; 0 for standard input.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// Counts the consumed bytes, not those that are buffered ahead.
struct Counting<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counting<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.inner.consume(count);
        self.read.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// A file's content.
pub(crate) struct Input {
    pub(crate) bytes: Box<dyn BufRead + Send>,
    pub(crate) compressed: bool,
    pub(crate) position: Position,
}

/// The bytes of a file, plain, gzip or zstd, and how far it has been read; `-` is standard input.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened or its first bytes cannot be read.
pub fn open_bytes(path: impl AsRef<Path>) -> Result<(Box<dyn BufRead + Send>, Position)> {
    Input::open(path.as_ref()).map(|input| (input.bytes, input.position))
}

impl Input {
    /// Opens a file, plain, gzip or zstd, detected by its first bytes; `-` is standard input.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be opened or its first bytes cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut position = Position::default();
        let raw: Box<dyn Read + Send> = if path.as_os_str() == "-" {
            Box::new(io::stdin())
        } else {
            let file = File::open(path).map_err(|source| Error::io(path, "open", source))?;
            let data = file.metadata().map_err(|source| Error::io(path, "open", source))?;
            if data.is_dir() {
                let source = io::Error::new(io::ErrorKind::NotFound, "expected a file, found a folder");
                return Err(Error::io(path, "open", source));
            }
            position.size = data.len();
            Box::new(file)
        };
        let raw = BufReader::with_capacity(BUFFER, raw);
        let mut raw = Counting { inner: raw, read: Arc::clone(&position.read) };
        let magic = raw.fill_buf().map_err(|source| Error::io(path, "read", source))?;
        let (compressed, bytes): (bool, Box<dyn BufRead + Send>) = if magic.starts_with(&[0x1f, 0x8b]) {
            (true, Box::new(BufReader::with_capacity(BUFFER, flate2::bufread::MultiGzDecoder::new(raw))))
        } else if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            let decoder =
                zstd::Decoder::with_buffer(raw).map_err(|source| Error::io(path, "read", source))?;
            (true, Box::new(BufReader::with_capacity(BUFFER, decoder)))
        } else {
            (false, Box::new(raw))
        };
        Ok(Self { bytes, compressed, position })
    }
}
