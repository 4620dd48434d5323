//! The file of the pages of a collection while it is written.

use std::{
    fs,
    io::{self, BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use sporran_kilt::Error as FileError;

use crate::Result;

/// The error of writing a file.
pub(super) fn failed(path: &Path) -> impl Fn(io::Error) -> FileError + use<> {
    let path = path.to_owned();
    move |error| FileError::io(&path, "write", error)
}

/// The file of pages while it is written.
pub(super) struct Out {
    pub(super) path: PathBuf,
    file: BufWriter<fs::File>,
    pub(super) hasher: blake3::Hasher,
    pub(super) bytes: u64,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Out {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = fs::File::create(path).map_err(failed(path))?;
        let file = BufWriter::with_capacity(1 << 20, file);
        Ok(Self { path: path.to_owned(), file, hasher: blake3::Hasher::new(), bytes: 0 })
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.write_all(bytes).map_err(failed(&self.path))?)
    }

    /// Removes what was written after the first `bytes` bytes, whose hash is `hasher`.
    pub(super) fn roll_back(&mut self, bytes: u64, hasher: blake3::Hasher) -> Result<()> {
        let file = &mut self.file;
        let cut = file.flush().and_then(|()| file.get_ref().set_len(bytes));
        cut.and_then(|()| file.seek(SeekFrom::Start(bytes))).map_err(failed(&self.path))?;
        (self.bytes, self.hasher) = (bytes, hasher);
        Ok(())
    }

    /// The length and the hash.
    pub(super) fn finish(mut self) -> Result<(u64, String)> {
        let written = self.file.flush().and_then(|()| self.file.get_ref().sync_data());
        written.map_err(failed(&self.path))?;
        Ok((self.bytes, self.hasher.finalize().to_hex().to_string()))
    }
}
