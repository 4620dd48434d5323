//! Checksums of a folder's files.
//!
//! [`Contents::check`] runs when a folder is opened. It reads every byte of a folder of up to 64 MiB. A
//! larger folder is read once. Then the file [`STAMP`] in it stores a hash over each file's expected BLAKE3,
//! length, modification and change times, and inode. While that hash is the same, the files are not read
//! again.
//!
//! So the stamp detects every write through the file system. This includes writes that reset the modification
//! time, because the system sets the change time. It does not detect bits that the medium itself changes
//! after the stamp was written. [`Contents::verify`] does, because it always reads everything.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// The file that marks the other files as verified.
pub const STAMP: &str = "verified";
const STAMP_MAGIC: &str = "sporran-verified 1";

/// Folders up to this size are read at every opening.
const SMALL: u64 = 64 << 20;
/// From this size on, the log explains the slow opening.
const LARGE: u64 = 4 << 30;
/// The read buffer: large enough that every thread hashes a part.
const BUFFER: usize = 4 << 20;

/// A file as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File<'a> {
    /// Its name in the folder.
    pub name: &'a str,
    /// Its length.
    pub bytes: u64,
    /// Its BLAKE3, in hexadecimal.
    pub blake3: &'a str,
}

/// The files that a folder's header lists.
#[derive(Clone, Debug)]
pub struct Contents<'a> {
    folder: &'a Path,
    files: Vec<File<'a>>,
}

impl<'a> Contents<'a> {
    /// The files of a folder.
    pub fn new(folder: &'a Path, files: impl IntoIterator<Item = File<'a>>) -> Self {
        Self { folder, files: files.into_iter().collect() }
    }

    /// Length of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Compares every file with its hash, or relies on the stamp of a large folder (see the module).
    ///
    /// # Errors
    /// [`Error::Checksum`] for the first file that is not what was written, [`Error::Io`].
    pub fn check(&self) -> Result<()> {
        self.check_above(SMALL)
    }

    /// As [`check`](Self::check), with folders of more than `small` bytes read once only.
    fn check_above(&self, small: u64) -> Result<()> {
        let bytes = self.bytes();
        if bytes <= small {
            return self.read();
        }
        let stamp = self.stamp()?;
        let path = self.folder.join(STAMP);
        if fs::read_to_string(&path).is_ok_and(|found| found == stamp) {
            return Ok(());
        }
        if bytes >= LARGE {
            let gibibytes = bytes as f64 / f64::from(1 << 30);
            tracing::warn!(folder = %self.folder.display(), "reads {gibibytes:.1} GiB once to compare checksums");
        }
        self.read()?;
        // Not if the files changed in the meantime. A read-only folder is read each time.
        if self.stamp()? == stamp
            && let Err(error) = fs::write(&path, &stamp)
        {
            tracing::info!(file = %path.display(), %error, "could not store the checksum stamp");
        }
        Ok(())
    }

    /// Reads every file and compares its hash, whatever the stamp contains. A wrong stamp is removed.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn verify(&self) -> Result<()> {
        let found = self.read();
        if let Err(Error::Checksum { .. }) = found {
            // If it cannot be removed, this user cannot write to the folder at all.
            let _ = fs::remove_file(self.folder.join(STAMP));
        }
        found
    }

    fn read(&self) -> Result<()> {
        let longest = self.files.iter().map(|file| file.bytes).max().unwrap_or_default();
        // One byte more than the longest file, so that a short file ends with its first read.
        let mut buffer = vec![0; usize::try_from(longest).unwrap_or(BUFFER).saturating_add(1).min(BUFFER)];
        for file in &self.files {
            let path = self.path(file);
            let found = hash(&path, &mut buffer)?;
            if found != file.blake3 {
                let (expected, folder) = (file.blake3.to_owned(), self.folder.to_owned());
                return Err(Error::Checksum { path, expected, found, folder });
            }
        }
        Ok(())
    }

    fn path(&self, file: &File<'_>) -> PathBuf {
        self.folder.join(file.name)
    }

    /// The stamp for the files in their current state.
    fn stamp(&self) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        for file in &self.files {
            let path = self.path(file);
            let metadata = fs::metadata(&path).map_err(|error| Error::io(&path, "open", error))?;
            let known = serde_json::json!([file.name, file.blake3, metadata.len(), identity(&metadata)]);
            hasher.update(known.to_string().as_bytes());
        }
        Ok(format!("{STAMP_MAGIC} {}\n", hasher.finalize().to_hex()))
    }
}

/// The BLAKE3 of a file, in hexadecimal. The file is read, not mapped, so that disk errors are reported.
fn hash(path: &Path, buffer: &mut [u8]) -> Result<String> {
    let mut file = fs::File::open(path).map_err(|error| Error::io(path, "open", error))?;
    let mut hasher = blake3::Hasher::new();
    loop {
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(path, "read", error)),
            }
        }
        hasher.update_rayon(&buffer[..filled]);
        if filled < buffer.len() {
            return Ok(hasher.finalize().to_hex().to_string());
        }
    }
}

/// The metadata that changes with every write.
#[cfg(unix)]
fn identity(metadata: &fs::Metadata) -> [i64; 5] {
    use std::os::unix::fs::MetadataExt;
    let inode = metadata.ino().cast_signed();
    [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec(), inode]
}

/// The metadata that changes with every write; here only the modification time.
#[cfg(not(unix))]
fn identity(metadata: &fs::Metadata) -> Option<u128> {
    let since = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(since.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of two files with their hashes.
    fn written(folder: &Path) -> Vec<(String, u64, String)> {
        let contents =
            [("a", vec![1; 5000]), ("b", (0..300).map(|at| at as u8).collect::<Vec<u8>>()), ("c", vec![])];
        let one = |(name, bytes): (&str, Vec<u8>)| {
            fs::write(folder.join(name), &bytes).unwrap();
            (name.to_owned(), bytes.len() as u64, blake3::hash(&bytes).to_hex().to_string())
        };
        contents.into_iter().map(one).collect()
    }

    fn contents<'a>(folder: &'a Path, files: &'a [(String, u64, String)]) -> Contents<'a> {
        Contents::new(folder, files.iter().map(|(name, bytes, blake3)| File { name, bytes: *bytes, blake3 }))
    }

    fn flip(path: &Path, at: usize) {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 4;
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_flipped_bit_is_found_whether_or_not_there_is_a_stamp() {
        let place = tempfile::tempdir().unwrap();
        let files = written(place.path());
        let contents = contents(place.path(), &files);
        assert_eq!(contents.bytes(), 5300);
        // As a small folder, and as a large one that is read once.
        for small in [SMALL, 0] {
            for (name, at) in [("a", 0), ("a", 4999), ("b", 150)] {
                contents.check_above(small).unwrap();
                assert_eq!(place.path().join(STAMP).exists(), small == 0);
                contents.check_above(small).unwrap();
                flip(&place.path().join(name), at);
                let error = contents.check_above(small).unwrap_err();
                assert!(matches!(&error, Error::Checksum { path, .. } if path.ends_with(name)), "{error}");
                let message = error.to_string();
                assert!(message.contains("checksum") && message.contains("delete the folder"), "{message}");
                assert!(error.is_input());
                flip(&place.path().join(name), at);
            }
        }
    }

    #[test]
    fn a_stamp_saves_reading_until_the_files_metadata_change() {
        let place = tempfile::tempdir().unwrap();
        let files = written(place.path());
        let contents = contents(place.path(), &files);
        contents.check_above(0).unwrap();
        // A stamp over other hashes, as after a rebuild at the same path, is invalid.
        let mut others = files.clone();
        others[0].2 = files[1].2.clone();
        assert!(matches!(
            super::Contents::new(
                place.path(),
                others.iter().map(|(name, bytes, blake3)| File { name, bytes: *bytes, blake3 })
            )
            .check_above(0),
            Err(Error::Checksum { .. })
        ));
        // A truncated stamp is written again.
        let stamp = fs::read(place.path().join(STAMP)).unwrap();
        fs::write(place.path().join(STAMP), &stamp[..30]).unwrap();
        contents.check_above(0).unwrap();
        assert_eq!(fs::read(place.path().join(STAMP)).unwrap(), stamp);
        // The change time reveals a write that resets the modification time.
        let path = place.path().join("b");
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        flip(&path, 7);
        fs::File::options().write(true).open(&path).unwrap().set_modified(before).unwrap();
        if cfg!(unix) {
            assert!(matches!(contents.check_above(0), Err(Error::Checksum { .. })));
        }
        // A full read removes a stamp that wrongly trusts a damaged file.
        fs::write(place.path().join(STAMP), contents.stamp().unwrap()).unwrap();
        contents.check_above(0).unwrap();
        assert!(matches!(contents.verify(), Err(Error::Checksum { .. })));
        assert!(!place.path().join(STAMP).exists());
        assert!(contents.check_above(0).is_err());
    }

    #[test]
    fn a_hash_does_not_depend_on_how_a_file_is_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a");
        for length in [0, 1, 99, 100, 101, 250] {
            let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
            fs::write(&path, &bytes).unwrap();
            assert_eq!(hash(&path, &mut [0; 100]).unwrap(), blake3::hash(&bytes).to_hex().to_string());
        }
    }
}
