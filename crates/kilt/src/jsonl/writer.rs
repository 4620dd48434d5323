//! Atomic file writers.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;
use tempfile::NamedTempFile;

use super::BUFFER;
use crate::{Error, Result};

/// A file that appears at its path only when it is complete.
///
/// If it is dropped without [`finish`](Self::finish), no file remains.
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
    /// A device or a pipe, which is written to as it is.
    Special(File),
    Stdout(io::Stdout),
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Special(file) => file.write(bytes),
            Self::Stdout(stdout) => stdout.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Special(file) => file.flush(),
            Self::Stdout(stdout) => stdout.flush(),
        }
    }
}

impl Writer {
    /// Starts a file; `.gz` and `.zst` compress, `-` is standard output. Missing folders are created. A link leads to the file
    /// that is replaced, and a device or a pipe is written to as it is.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be created or written to; [`Error::NotAFolder`] if it is a file.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let given = path.as_ref();
        let fail = |source| Error::io(given, "write", source);
        let path = &target_of(given).map_err(fail)?;
        let target = if given.as_os_str() == "-" {
            Target::Stdout(io::stdout())
        } else if is_special(path) {
            Target::Special(fs::OpenOptions::new().write(true).open(path).map_err(fail)?)
        } else {
            let folder =
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            crate::folder::make(folder)?;
            Target::File(temporary_in(folder).map_err(fail)?)
        };
        let target = BufWriter::with_capacity(BUFFER, target);
        let output = match given.extension().and_then(|ending| ending.to_str()) {
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
    /// [`Error::Io`] if writing fails.
    pub fn record<T: Serialize + ?Sized>(&mut self, record: &T) -> Result<()> {
        let line =
            serde_json::to_vec(record).map_err(|error| Error::io(&self.path, "write", error.into()))?;
        self.line(&line)
    }

    /// Writes bytes and a line end.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails.
    pub fn line(&mut self, line: &[u8]) -> Result<()> {
        self.bytes(line)?;
        self.bytes(b"\n")
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let result = match &mut self.output {
            Output::Plain(output) => output.write_all(bytes),
            Output::Gzip(output) => output.write_all(bytes),
            Output::Zstd(output) => output.write_all(bytes),
        };
        result.map_err(|source| Error::io(&self.path, "write", source))
    }

    /// Completes the file and renames it to its path. Both are on disk afterwards.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails; then no file appears.
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
            Target::Special(mut file) => file.flush().map_err(fail),
            Target::File(file) => {
                file.as_file().sync_data().map_err(fail)?;
                file.persist(&path).map_err(|error| Error::io(&path, "rename", error.error))?;
                crate::folder::sync(path.parent().unwrap_or(Path::new("")))
            }
        }
    }
}

/// The path of the file that a path leads to.
fn target_of(path: &Path) -> io::Result<PathBuf> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let leads_to_a_file = is_link && path.metadata().is_ok_and(|found| found.is_file());
    if leads_to_a_file { path.canonicalize() } else { Ok(path.to_owned()) }
}

/// Whether a path is a device, a pipe or a socket, which a file must not replace.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// The prefix of temporary files.
pub(crate) const TEMPORARY: &str = ".sporran-";

/// The prefix of this process's temporary files, which identifies leftovers of an interrupted process.
pub fn temporary_prefix() -> String {
    format!("{TEMPORARY}{}-", std::process::id())
}

/// A temporary file next to its final path, with the permissions of an ordinary new file.
fn temporary_in(folder: &Path) -> io::Result<NamedTempFile> {
    let prefix = temporary_prefix();
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    builder.tempfile_in(folder)
}

/// Writes one value as indented JSON, atomically.
///
/// # Errors
/// [`Error::Io`] if writing fails or JSON cannot represent the value; then no file appears.
pub fn write_json(path: impl AsRef<Path>, value: &impl Serialize) -> Result<()> {
    let path = path.as_ref();
    let mut json =
        serde_json::to_vec_pretty(value).map_err(|error| Error::io(path, "write", error.into()))?;
    json.push(b'\n');
    write(path, &json)
}

/// Writes a whole file at once, atomically.
///
/// # Errors
/// [`Error::Io`] if writing fails; then no file appears.
pub fn write(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let mut writer = Writer::create(path)?;
    writer.bytes(bytes)?;
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_writer_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(folder.path().join("a.jsonl")).unwrap();
        writer.line(b"{}").unwrap();
        drop(writer);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_written_to_and_a_link_leads_to_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(place("pipe")).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = place("pipe");
            move || fs::read_to_string(pipe).unwrap()
        });
        fs::write(place("file"), "old").unwrap();
        std::os::unix::fs::symlink("file", place("link")).unwrap();
        for name in ["pipe", "link"] {
            let mut writer = Writer::create(place(name)).unwrap();
            writer.line(b"{}").unwrap();
            writer.finish().unwrap();
        }
        assert_eq!(reader.join().unwrap(), "{}\n");
        assert!(!place("pipe").metadata().unwrap().is_file());
        assert!(place("link").is_symlink());
        assert_eq!(fs::read_to_string(place("file")).unwrap(), "{}\n");
    }
}
