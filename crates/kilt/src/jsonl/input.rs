//! Bytes of plain, gzip and zstd files.
//!
//! A gzip file may have several members, and zero bytes between and after them, as for `gzip -d`. A zstd file may have
//! several frames and a window of up to [`Limits::window`]. Reading needs as much memory as the window of the file. UTF-8's byte order mark at the beginning is skipped. UTF-16 and UTF-32 are errors that name them.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    ops::Deref,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use flate2::bufread::GzDecoder;

use super::{
    BUFFER,
    limits::{Bounded, Limits},
};
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

/// A file that is read: its path, and the number of half surrogate pairs that were read as U+FFFD. A warning gives the
/// number when the reading ends.
#[derive(Debug)]
pub struct InputFile {
    path: PathBuf,
    halves: AtomicU64,
}

impl InputFile {
    /// The file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), halves: AtomicU64::new(0) }
    }

    /// Counts replaced halves.
    pub(crate) fn replaced(&self, halves: u64) {
        self.halves.fetch_add(halves, Ordering::Relaxed);
    }

    /// The number of replaced halves so far.
    pub fn halves(&self) -> u64 {
        self.halves.load(Ordering::Relaxed)
    }
}

impl Deref for InputFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl Drop for InputFile {
    fn drop(&mut self) {
        let count = self.halves();
        if count > 0 {
            let file = self.path.display();
            tracing::warn!(%file, count, "lone surrogates, such as \\ud83d without its second half, were read as U+FFFD");
        }
    }
}

/// The members of a gzip file, one after the other.
struct Members<R> {
    /// The member that is read.
    member: Option<GzDecoder<R>>,
    /// The bytes after a member.
    between: Option<R>,
}

impl<R: BufRead> Members<R> {
    fn new(bytes: R) -> Self {
        Self { member: Some(GzDecoder::new(bytes)), between: None }
    }

    /// Starts the member after a padding; `false` at the end of the file.
    fn advance(&mut self) -> io::Result<bool> {
        if let Some(member) = self.member.take() {
            self.between = Some(member.into_inner());
        }
        while let Some(bytes) = &mut self.between {
            let some = bytes.fill_buf()?;
            let (zeros, all) = (some.iter().take_while(|&&byte| byte == 0).count(), some.len());
            bytes.consume(zeros);
            if all == 0 {
                self.between = None;
            } else if zeros < all {
                self.member = self.between.take().map(GzDecoder::new);
            }
        }
        Ok(self.member.is_some())
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(member) = &mut self.member {
                let read = member.read(buffer)?;
                if read > 0 || buffer.is_empty() {
                    return Ok(read);
                }
            }
            if !self.advance()? {
                return Ok(0);
            }
        }
    }
}

/// The encoding of text that begins with these bytes, if it is not UTF-8. Without a byte order mark, UTF-16 is known by
/// zero bytes, which no text has.
fn other_encoding(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xFF, 0xFE, 0, 0, ..] => Some("UTF-32LE"),
        [0, 0, 0xFE, 0xFF, ..] => Some("UTF-32BE"),
        [0xFF, 0xFE, ..] => Some("UTF-16LE"),
        [0xFE, 0xFF, ..] => Some("UTF-16BE"),
        [a, 0, b, 0, ..] if *a > 0 && *b > 0 => Some("UTF-16LE"),
        [0, a, 0, b, ..] if *a > 0 && *b > 0 => Some("UTF-16BE"),
        _ => None,
    }
}

/// Whether a path can be read only once: standard input, a pipe or a device. A path that cannot be looked up has its error when it is
/// opened.
pub fn is_stream(path: &Path) -> bool {
    path.as_os_str() == "-" || path.metadata().is_ok_and(|about| !about.is_file() && !about.is_dir())
}

/// A file's content.
pub(crate) struct Input {
    pub(crate) bytes: Box<dyn BufRead + Send>,
    pub(crate) compressed: bool,
    pub(crate) position: Position,
}

/// The bytes of a file of any encoding, plain, gzip or zstd, and how far it has been read; `-` is standard input. A byte
/// order mark is not skipped.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened or its first bytes cannot be read.
pub fn open_bytes(path: impl AsRef<Path>) -> Result<(Box<dyn BufRead + Send>, Position)> {
    Input::raw(path.as_ref()).map(|input| (input.bytes, input.position))
}

impl Input {
    /// Opens a file, plain, gzip or zstd, detected by its first bytes; `-` is standard input.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be opened or its first bytes cannot be read; [`Error::Compressed`];
    /// [`Error::Encoding`] for text in UTF-16 or UTF-32.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut input = Self::raw(path)?;
        let compressed = input.compressed;
        let first = input.bytes.fill_buf().map_err(|source| match compressed {
            true => Error::compressed(path, 0, source),
            false => Error::io(path, "read", source),
        })?;
        if let Some(encoding) = other_encoding(first) {
            return Err(Error::Encoding { path: path.to_owned(), encoding });
        }
        if first.starts_with("\u{feff}".as_bytes()) {
            input.bytes.consume('\u{feff}'.len_utf8());
        }
        Ok(input)
    }

    /// Opens a file, whose text can have any encoding.
    fn raw(path: &Path) -> Result<Self> {
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
        let read = Arc::clone(&position.read);
        let magic = raw.fill_buf().map_err(|source| Error::io(path, "read", source))?;
        let is_zstd = match magic {
            // A skippable frame, as parallel compressors write, may be the first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => true,
            _ => magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]),
        };
        let (compressed, bytes): (bool, Box<dyn BufRead + Send>) = if magic.starts_with(&[0x1f, 0x8b]) {
            (true, Box::new(BufReader::with_capacity(BUFFER, Bounded::new(Members::new(raw), read))))
        } else if is_zstd {
            let decoder = zstd::Decoder::with_buffer(raw).and_then(|mut decoder| {
                decoder.window_log_max(Limits::current().window_log())?;
                Ok(decoder)
            });
            let decoder = decoder.map_err(|source| Error::io(path, "read", source))?;
            (true, Box::new(BufReader::with_capacity(BUFFER, Bounded::new(decoder, read))))
        } else {
            (false, Box::new(raw))
        };
        Ok(Self { bytes, compressed, position })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::jsonl::{open, read_to_string};

    fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        let text = b"\xef\xbb\xbfone\r\n\xef\xbb\xbftwo\n";
        for bytes in [text.to_vec(), gzip(text), zstd::encode_all(text.as_slice(), 1).unwrap()] {
            let file = written(&bytes);
            // Only at the beginning of the file.
            assert_eq!(read_to_string(file.path()).unwrap(), "one\r\n\u{feff}two\n");
            let lines: Vec<_> = open(file.path()).unwrap().lines().map(Result::unwrap).collect();
            assert_eq!(lines, [(1, "one".to_owned()), (2, "\u{feff}two".to_owned())]);
        }
        assert_eq!(read_to_string(written(b"\xef\xbb\xbf").path()).unwrap(), "");
    }

    #[test]
    fn other_encodings_are_named() {
        let units = |text: &str, little: bool| -> Vec<u8> {
            let bytes = |unit: u16| if little { unit.to_le_bytes() } else { unit.to_be_bytes() };
            text.encode_utf16().flat_map(bytes).collect()
        };
        let wide: Vec<u8> = "\u{feff}ab".chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
        for (bytes, encoding) in [
            (units("\u{feff}q1\tone", true), "UTF-16LE"),
            (units("\u{feff}q1\tone", false), "UTF-16BE"),
            (units("{\"id\": 1}", true), "UTF-16LE"),
            (units("{\"id\": 1}", false), "UTF-16BE"),
            (wide, "UTF-32LE"),
        ] {
            for bytes in [bytes.clone(), gzip(&bytes)] {
                let file = written(&bytes);
                let message = open(file.path()).err().unwrap().to_string();
                let expected = format!("expected text in UTF-8, found {encoding}; convert it");
                assert!(message.contains(&expected), "{message}");
            }
        }
    }

    #[test]
    fn members_and_padding_of_gzip_are_read_as_gzip_reads_them() {
        let (one, two, none) = (gzip(b"one\n"), gzip(b"two\n"), gzip(b""));
        let zeros = vec![0; 600_000];
        for parts in [
            vec![&one, &two],
            vec![&one, &zeros, &two],
            vec![&none, &one, &none, &two, &zeros],
            vec![&zeros[..0].to_vec(), &one, &two, &zeros],
        ] {
            let bytes = parts.into_iter().flatten().copied().collect::<Vec<u8>>();
            assert_eq!(read_to_string(written(&bytes).path()).unwrap(), "one\ntwo\n");
        }
        for rest in [&b"\0\0x"[..], b"\x1f\x8b", &two[..two.len() - 1]] {
            let file = written(&[&one, rest].concat());
            let lines: Vec<_> = open(file.path()).unwrap().lines().collect();
            assert!(matches!(lines.last(), Some(Err(Error::Compressed { .. }))), "{lines:?}");
        }
    }

    #[test]
    fn a_zstd_file_with_a_long_window_is_read() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(28).unwrap();
        encoder.long_distance_matching(true).unwrap();
        encoder.write_all(b"long\n").unwrap();
        let frame = encoder.finish().unwrap();
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7], frame.as_slice()].concat();
        for bytes in [frame.clone(), skippable, [frame.clone(), frame].concat()] {
            let text = read_to_string(written(&bytes).path()).unwrap();
            assert_eq!(text.replace("long\n", ""), "", "{text}");
            assert!(!text.is_empty());
        }
    }
}
