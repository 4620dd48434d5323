//! Limits of the length of a line and of the bytes that a compressed file unpacks to.

use std::{
    fmt,
    io::{self, BufRead, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The limits of all readers of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the longest line, or of the longest element of a JSON array. At least 1.
    pub line: u64,
    /// A compressed file may unpack to this many times its size. Files that unpack to at most [`FREE`] bytes have no such
    /// limit. At least 1.
    pub expansion: u64,
    /// Bytes of the longest window of a zstd file, which takes so much memory; rounded down to a power of two. At least 1024.
    pub window: u64,
}

/// Bytes that each compressed file may unpack to, however small it is: 1 GiB.
pub const FREE: u64 = 1 << 30;

static LINE: AtomicU64 = AtomicU64::new(Limits::DEFAULT.line);
static EXPANSION: AtomicU64 = AtomicU64::new(Limits::DEFAULT.expansion);
static WINDOW: AtomicU64 = AtomicU64::new(Limits::DEFAULT.window);
/// The shortest and the longest window that zstd can be limited to.
const WINDOWS: (u64, u64) = (1 << 10, 1 << 31);

impl Limits {
    /// 1 GiB for a line, 250 times the size of a compressed file, and a window of 2 GiB, the longest that `zstd --long` writes.
    pub const DEFAULT: Self = Self { line: 1 << 30, expansion: 250, window: WINDOWS.1 };

    /// The limits in use.
    #[must_use]
    pub fn current() -> Self {
        Self {
            line: LINE.load(Ordering::Relaxed),
            expansion: EXPANSION.load(Ordering::Relaxed),
            window: WINDOW.load(Ordering::Relaxed),
        }
    }

    /// Uses these limits for all files that are opened from now on.
    pub fn set(self) {
        LINE.store(self.line.max(1), Ordering::Relaxed);
        EXPANSION.store(self.expansion.max(1), Ordering::Relaxed);
        WINDOW.store(self.window.clamp(WINDOWS.0, WINDOWS.1), Ordering::Relaxed);
    }

    /// The base-2 logarithm of the longest window.
    pub(super) fn window_log(self) -> u32 {
        self.window.max(1).ilog2()
    }
}

/// The error of a compressed file that unpacks to too much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooMuch {
    pub(crate) expansion: u64,
}

impl TooMuch {
    /// The limit that `error` reports, if it is of this kind.
    pub(crate) fn of(error: &io::Error) -> Option<u64> {
        error.get_ref()?.downcast_ref::<Self>().map(|error| error.expansion)
    }
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected at most {} times the bytes of the compressed file, found more", self.expansion)
    }
}

impl std::error::Error for TooMuch {}

/// The unpacked bytes of a compressed file, up to a limit.
pub(super) struct Bounded<R> {
    inner: R,
    /// Compressed bytes that the decoder has consumed.
    packed: Arc<AtomicU64>,
    /// Bytes that were unpacked so far.
    unpacked: u64,
    free: u64,
    expansion: u64,
}

impl<R> Bounded<R> {
    /// Limits `inner`, whose decoder counts the bytes that it consumes in `packed`, by the limits in use.
    pub(super) fn new(inner: R, packed: Arc<AtomicU64>) -> Self {
        Self { inner, packed, unpacked: 0, free: FREE, expansion: Limits::current().expansion }
    }

    fn count(&mut self, bytes: usize) -> io::Result<()> {
        self.unpacked += bytes as u64;
        let most = self.packed.load(Ordering::Relaxed).saturating_mul(self.expansion).max(self.free);
        if self.unpacked > most {
            return Err(io::Error::other(TooMuch { expansion: self.expansion }));
        }
        Ok(())
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count(read)?;
        Ok(read)
    }
}

/// Reads a line with its end into `buffer`, which may have content already; 0 at the end of the file. None if the content would be
/// longer than `most` bytes.
pub(crate) fn read_line(
    input: &mut (impl BufRead + ?Sized),
    buffer: &mut Vec<u8>,
    most: u64,
) -> io::Result<Option<usize>> {
    let room = most.saturating_add(1).saturating_sub(buffer.len() as u64);
    let read = input.take(room).read_until(b'\n', buffer)?;
    let too_long = buffer.len() as u64 > most && !buffer.ends_with(b"\n");
    Ok((!too_long).then_some(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacked_bytes_end_at_the_limit_of_their_file() {
        let read = |packed: u64, free: u64, length: usize| {
            let inner = io::repeat(b'a').take(length as u64);
            let packed = Arc::new(AtomicU64::new(packed));
            let mut bounded = Bounded { inner, packed, unpacked: 0, free, expansion: 10 };
            bounded.read_to_end(&mut Vec::new())
        };
        assert_eq!(read(100, 0, 1000).unwrap(), 1000);
        assert_eq!(TooMuch::of(&read(100, 0, 1001).unwrap_err()), Some(10));
        assert_eq!(read(1, 2000, 2000).unwrap(), 2000);
        assert_eq!(TooMuch::of(&read(1, 2000, 2001).unwrap_err()), Some(10));
        assert_eq!(TooMuch::of(&io::Error::other("other")), None);
    }

    #[test]
    fn a_window_is_a_power_of_two() {
        let log = |window| Limits { window, ..Limits::DEFAULT }.window_log();
        assert_eq!([Limits::DEFAULT.window, 8 << 20, (16 << 20) - 1, 1 << 10].map(log), [31, 23, 23, 10]);
    }

    #[test]
    fn a_line_ends_at_its_limit() {
        let read = |text: &str, most| {
            let mut buffer = Vec::new();
            let read = read_line(&mut text.as_bytes(), &mut buffer, most).unwrap();
            (read, String::from_utf8(buffer).unwrap())
        };
        assert_eq!(read("abc\nd", 3), (Some(4), "abc\n".to_owned()));
        assert_eq!(read("abc", 3), (Some(3), "abc".to_owned()));
        assert_eq!(read("", 3), (Some(0), String::new()));
        assert_eq!(read("abcd\n", 3).0, None);
        // An endless line takes no more memory than the limit.
        let mut buffer = Vec::new();
        let mut endless = io::BufReader::new(io::repeat(b'a'));
        assert_eq!(read_line(&mut endless, &mut buffer, 1000).unwrap(), None);
        assert_eq!(buffer.len(), 1001);
    }
}
