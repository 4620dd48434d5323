//! JSON lines and text lines, streamed from plain, gzip and zstd files; atomic writers.
//!
//! Compression is told by a file's first bytes when reading and by its name's ending when writing. `-` is standard
//! input or output.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
};

use rayon::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use tempfile::NamedTempFile;

use crate::{Error, Result};

const BUFFER: usize = 1 << 18;
/// Bytes of lines that one parallel batch holds.
const BATCH: usize = 4 << 20;

/// Lines of a file, counted from 1.
pub struct Reader {
    path: PathBuf,
    input: Box<dyn BufRead + Send>,
    compressed: bool,
    line: u64,
    buffer: Vec<u8>,
    position: Position,
}

/// How far a file has been read, in bytes as they lie on disk; it can be watched while the reader is at work.
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

/// Opens a file, plain, gzip or zstd; `-` is standard input.
///
/// # Errors
/// [`Error::Io`] where the file cannot be opened or its first bytes cannot be read.
pub fn open(path: impl AsRef<Path>) -> Result<Reader> {
    let path = path.as_ref();
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
    let raw = Counting { inner: raw, read: Arc::clone(&position.read) };
    let mut raw = BufReader::with_capacity(BUFFER, raw);
    let magic = raw.fill_buf().map_err(|source| Error::io(path, "read", source))?;
    let (compressed, input): (bool, Box<dyn BufRead + Send>) = if magic.starts_with(&[0x1f, 0x8b]) {
        (true, Box::new(BufReader::with_capacity(BUFFER, flate2::bufread::MultiGzDecoder::new(raw))))
    } else if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder = zstd::Decoder::with_buffer(raw).map_err(|source| Error::io(path, "read", source))?;
        (true, Box::new(BufReader::with_capacity(BUFFER, decoder)))
    } else {
        (false, Box::new(raw))
    };
    Ok(Reader { path: path.to_owned(), input, compressed, line: 0, buffer: Vec::new(), position })
}

impl Reader {
    /// The file's path, for errors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How far the file has been read.
    pub fn position(&self) -> Position {
        self.position.clone()
    }

    /// The next line that is not blank with its number, without its line end; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Compressed`] for a damaged or truncated stream.
    pub fn next_line(&mut self) -> Result<Option<(u64, &[u8])>> {
        loop {
            self.buffer.clear();
            let read = self.input.read_until(b'\n', &mut self.buffer);
            if read.map_err(|source| self.failure(source))? == 0 {
                return Ok(None);
            }
            self.line += 1;
            if !self.buffer.trim_ascii().is_empty() {
                // Only the line end goes: blanks before it can belong to the last field of a TSV.
                let end = self
                    .buffer
                    .iter()
                    .rposition(|byte| !matches!(byte, b'\n' | b'\r'))
                    .map_or(0, |at| at + 1);
                self.buffer.truncate(end);
                return Ok(Some((self.line, &self.buffer)));
            }
        }
    }

    fn failure(&self, source: io::Error) -> Error {
        if self.compressed {
            Error::Compressed { path: self.path.clone(), line: self.line, source }
        } else {
            Error::io(&self.path, "read", source)
        }
    }

    /// Every line as text, with its number.
    pub fn lines(mut self) -> impl Iterator<Item = Result<(u64, String)>> {
        let path = self.path.clone();
        std::iter::from_fn(move || match self.next_line() {
            Ok(None) => None,
            Ok(Some((line, bytes))) => Some(utf8(&path, line, bytes).map(|text| (line, text.to_owned()))),
            Err(error) => Some(Err(error)),
        })
        .scan(false, stop_after_error)
    }

    /// Every line as a record.
    pub fn records<T: DeserializeOwned>(self) -> impl Iterator<Item = Result<T>> {
        self.numbered().map(|record| record.map(|(_, record)| record))
    }

    /// Every line as a record, with its number.
    pub fn numbered<T: DeserializeOwned>(mut self) -> impl Iterator<Item = Result<(u64, T)>> {
        let path = self.path.clone();
        std::iter::from_fn(move || match self.next_line() {
            Ok(None) => None,
            Ok(Some((line, bytes))) => Some(parse(&path, line, bytes).map(|record| (line, record))),
            Err(error) => Some(Err(error)),
        })
        .scan(false, stop_after_error)
    }

    /// Parses on all threads and hands batches to `each` in the file's order. A batch holds about 4 MiB of lines, so
    /// memory stays bounded; reading goes on while batches are parsed and handed over.
    ///
    /// # Errors
    /// The first error in the file's order, whether from reading, parsing or `each`.
    pub fn batches<T: DeserializeOwned + Send>(
        self,
        mut each: impl FnMut(Vec<(u64, T)>) -> Result<()>,
    ) -> Result<()> {
        self.chunks(|path, chunk| {
            let parsed: Result<Vec<(u64, T)>> =
                chunk.par_lines().map(|(line, bytes)| Ok((line, parse(path, line, bytes)?))).collect();
            each(parsed?)
        })
    }

    /// Hands chunks of whole lines to `each` in the file's order while the next chunk is read.
    ///
    /// # Errors
    /// The first error, whether from reading or from `each`.
    pub fn chunks(mut self, mut each: impl FnMut(&Path, Chunk) -> Result<()>) -> Result<()> {
        let path = self.path.clone();
        let (sender, receiver) = mpsc::sync_channel::<Result<Chunk>>(1);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                loop {
                    let mut chunk = Chunk::default();
                    let failed = loop {
                        match self.next_line() {
                            Ok(Some((line, bytes))) => {
                                chunk.push(line, bytes);
                                if chunk.bytes.len() >= BATCH {
                                    break None;
                                }
                            }
                            Ok(None) => break Some(None),
                            Err(error) => break Some(Some(error)),
                        }
                    };
                    // A send fails only when the receiver stopped on an error of its own.
                    if !chunk.lines.is_empty() && sender.send(Ok(chunk)).is_err() {
                        return;
                    }
                    match failed {
                        None => {}
                        Some(None) => return,
                        Some(Some(error)) => {
                            let _ = sender.send(Err(error));
                            return;
                        }
                    }
                }
            });
            for chunk in receiver {
                each(&path, chunk?)?;
            }
            Ok(())
        })
    }
}

/// Lines of a file in one allocation.
#[derive(Default)]
pub struct Chunk {
    bytes: Vec<u8>,
    /// Line number and the end of the line in `bytes`.
    lines: Vec<(u64, usize)>,
}

impl Chunk {
    fn push(&mut self, line: u64, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.lines.push((line, self.bytes.len()));
    }

    /// The lines with their numbers, in order, over all threads.
    pub fn par_lines(&self) -> impl IndexedParallelIterator<Item = (u64, &[u8])> {
        self.lines.par_iter().enumerate().map(|(at, &(line, end))| {
            let start = if at == 0 { 0 } else { self.lines[at - 1].1 };
            (line, &self.bytes[start..end])
        })
    }
}

/// Ends an iterator after its first error.
fn stop_after_error<T>(failed: &mut bool, item: Result<T>) -> Option<Result<T>> {
    if *failed {
        return None;
    }
    *failed = item.is_err();
    Some(item)
}

/// A line's bytes as text.
///
/// # Errors
/// [`Error::Utf8`] with the first wrong byte.
pub fn utf8<'a>(path: &Path, line: u64, bytes: &'a [u8]) -> Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|error| Error::Utf8 {
        path: path.to_owned(),
        line,
        byte: error.valid_up_to(),
    })
}

/// A line as a record.
///
/// # Errors
/// [`Error::Utf8`], or [`Error::Record`] with the field's path.
pub fn parse<'a, T: serde::Deserialize<'a>>(path: &Path, line: u64, bytes: &'a [u8]) -> Result<T> {
    // The fast way first; only a failure pays for following the path of the field.
    serde_json::from_slice(bytes).or_else(|_| {
        let text = utf8(path, line, bytes)?;
        let mut json = serde_json::Deserializer::from_str(text);
        let value = serde_path_to_error::deserialize(&mut json)
            .map_err(|error| Error::record(path, line, field(error.path()), plain(error.inner())))?;
        json.end().map_err(|error| Error::record(path, line, ".", plain(&error)))?;
        Ok(value)
    })
}

/// The path of a field; where the JSON broke off inside an object, that object's.
fn field(path: &serde_path_to_error::Path) -> String {
    let path = path.to_string();
    let path = path.trim_end_matches('?').trim_end_matches('.');
    if path.is_empty() { ".".to_owned() } else { path.to_owned() }
}

/// serde_json's message with the column alone: the line that it counts is always 1 here.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line 1 column ") {
        Some(at) => format!("{} (column {})", &text[..at], error.column()),
        None => text,
    }
}

/// A file that appears under its name only when it is complete.
///
/// Dropped without [`finish`](Self::finish), nothing is left behind.
pub struct Writer {
    path: PathBuf,
    output: Output,
}

enum Output {
    Plain(BufWriter<Target>),
    Gzip(flate2::write::GzEncoder<BufWriter<Target>>),
    Zstd(zstd::Encoder<'static, BufWriter<Target>>),
}

enum Target {
    File(NamedTempFile),
    Stdout(io::Stdout),
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Stdout(stdout) => stdout.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Stdout(stdout) => stdout.flush(),
        }
    }
}

impl Writer {
    /// Starts a file; `.gz` and `.zst` compress, `-` is standard output. Missing folders are made.
    ///
    /// # Errors
    /// [`Error::Io`] where the folder cannot be made or written to.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let fail = |source| Error::io(path, "write", source);
        let target = if path.as_os_str() == "-" {
            Target::Stdout(io::stdout())
        } else {
            let folder =
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            std::fs::create_dir_all(folder).map_err(fail)?;
            Target::File(temporary_in(folder).map_err(fail)?)
        };
        let target = BufWriter::with_capacity(BUFFER, target);
        let output = match path.extension().and_then(|ending| ending.to_str()) {
            // Without a name or a time in the header, the same lines give the same bytes.
            Some("gz") => Output::Gzip(flate2::GzBuilder::new().write(target, flate2::Compression::new(6))),
            Some("zst") => Output::Zstd(zstd::Encoder::new(target, 3).map_err(fail)?),
            _ => Output::Plain(target),
        };
        Ok(Self { path: path.to_owned(), output })
    }

    /// Writes one record as a line of JSON.
    ///
    /// # Errors
    /// [`Error::Io`] where the disk refuses.
    pub fn record<T: Serialize + ?Sized>(&mut self, record: &T) -> Result<()> {
        let line =
            serde_json::to_vec(record).map_err(|error| Error::io(&self.path, "write", error.into()))?;
        self.line(&line)
    }

    /// Writes bytes and a line end.
    ///
    /// # Errors
    /// [`Error::Io`] where the disk refuses.
    pub fn line(&mut self, line: &[u8]) -> Result<()> {
        self.bytes(line)?;
        self.bytes(b"\n")
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// [`Error::Io`] where the disk refuses.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let result = match &mut self.output {
            Output::Plain(output) => output.write_all(bytes),
            Output::Gzip(output) => output.write_all(bytes),
            Output::Zstd(output) => output.write_all(bytes),
        };
        result.map_err(|source| Error::io(&self.path, "write", source))
    }

    /// Makes the file appear.
    ///
    /// # Errors
    /// [`Error::Io`] where the disk refuses; then nothing appears.
    pub fn finish(self) -> Result<()> {
        let Self { path, output } = self;
        let fail = |source| Error::io(&path, "write", source);
        let buffered = match output {
            Output::Plain(output) => output,
            Output::Gzip(output) => output.finish().map_err(fail)?,
            Output::Zstd(output) => output.finish().map_err(fail)?,
        };
        match buffered.into_inner().map_err(|error| fail(error.into_error()))? {
            Target::Stdout(mut stdout) => stdout.flush().map_err(fail),
            Target::File(file) => {
                file.as_file().sync_data().map_err(fail)?;
                file.persist(&path).map_err(|error| Error::io(&path, "rename", error.error))?;
                Ok(())
            }
        }
    }
}

/// A temporary file beside the place that it will be renamed to, readable by others as a plain new file would be.
fn temporary_in(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".sporran-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    builder.tempfile_in(folder)
}

/// Writes a whole file at once, atomically.
///
/// # Errors
/// [`Error::Io`] where the disk refuses; then nothing appears.
pub fn write(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let mut writer = Writer::create(path)?;
    writer.bytes(bytes)?;
    writer.finish()
}

/// Reads a whole (possibly compressed) file.
///
/// # Errors
/// [`Error::Io`], [`Error::Compressed`] or [`Error::Utf8`].
pub fn read_to_string(path: impl AsRef<Path>) -> Result<String> {
    let mut reader = open(path)?;
    let mut bytes = Vec::new();
    reader.input.read_to_end(&mut bytes).map_err(|source| reader.failure(source))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = &error.as_bytes()[..at];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() as u64 + 1;
        let start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        Error::Utf8 { path: reader.path.clone(), line, byte: at - start }
    })
}

/// Reads a whole (possibly compressed) file as one JSON value.
///
/// # Errors
/// As [`read_to_string`], and [`Error::Record`] with line and field.
pub fn read_json<T: DeserializeOwned>(path: impl AsRef<Path>) -> Result<T> {
    let path = path.as_ref();
    let text = read_to_string(path)?;
    let mut json = serde_json::Deserializer::from_str(&text);
    let fail =
        |field, error: &serde_json::Error| Error::record(path, error.line() as u64, field, plain(error));
    let value = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| fail(field(error.path()), error.inner()))?;
    json.end().map_err(|error| fail(".".into(), &error))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;

    fn lines(count: usize) -> Vec<String> {
        (0..count).map(|at| format!(r#"{{"id":{at},"input":"{}"}}"#, "x".repeat(at % 97))).collect()
    }

    fn read(path: &Path) -> Result<Vec<Record>> {
        open(path)?.records().collect()
    }

    #[test]
    fn plain_gzip_and_zstd_files_hold_the_same_records() {
        let folder = tempfile::tempdir().unwrap();
        let expected = lines(1000);
        for name in ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"] {
            let path = folder.path().join("new").join(name);
            let mut writer = Writer::create(&path).unwrap();
            expected.iter().for_each(|line| writer.line(line.as_bytes()).unwrap());
            assert!(!path.exists(), "appears before it is finished");
            writer.finish().unwrap();
            let records = read(&path).unwrap();
            assert_eq!(records.len(), 1000);
            let again: Vec<String> =
                records.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
            assert_eq!(again, expected);
            let mut batched = Vec::new();
            open(&path)
                .unwrap()
                .batches::<Record>(|batch| {
                    batched.extend(batch);
                    Ok(())
                })
                .unwrap();
            assert_eq!(
                batched.iter().map(|(line, _)| *line).collect::<Vec<_>>(),
                (1..=1000).collect::<Vec<u64>>()
            );
        }
    }

    #[test]
    fn an_unfinished_writer_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(folder.path().join("a.jsonl")).unwrap();
        writer.line(b"{}").unwrap();
        drop(writer);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_truncated_gzip_file_is_named_with_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl.gz");
        let mut writer = Writer::create(&path).unwrap();
        for at in 0..20_000u32 {
            writer.line(format!(r#"{{"id":"{:x}"}}"#, at.wrapping_mul(2_654_435_761)).as_bytes()).unwrap();
        }
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        match read(&path).unwrap_err() {
            Error::Compressed { line, .. } => assert!(line > 100 && line < 20_000, "{line}"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(open(&path).unwrap().batches::<Record>(|_| Ok(())), Err(Error::Compressed { .. })));
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let cases: [(&[u8], &str); 4] = [
            (
                b"{\"id\":1}\n\n{\"id\":2,\"output\":[{\"provenance\":[{\"wikipedia_id\":1.5}]}]}\n",
                "field `output[0].provenance[0].wikipedia_id`",
            ),
            (b"{\"id\":1}\n\n{\"id\":2\n", "field `.`"),
            (b"{\"id\":1}\n\n{\"input\":\"q\"}\n", "missing field `id`"),
            (b"{\"id\":1}\n\n{\"id\":\"\xff\"}\n", "invalid UTF-8 at byte 7"),
        ];
        for (bytes, expected) in cases {
            std::fs::write(&path, bytes).unwrap();
            let message = read(&path).unwrap_err().to_string();
            assert!(message.contains("a.jsonl:3: ") && message.contains(expected), "{message}");
        }
    }
}
