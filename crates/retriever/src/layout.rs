//! An index's folder: a header and the files it describes.
//!
//! The file `header` is text. Its first line is `sporran-index VERSION BLAKE3`, where the hash is of all that follows;
//! then comes a JSON object, a [`Header`], with the length and the hash of every other file. All numbers in the other
//! files are little-endian. An index is written to a folder beside its place and renamed, so that it is there whole or
//! not at all.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    ops::Deref,
    path::{Path, PathBuf},
};

use memmap2::Mmap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Error, Result};

const MAGIC: &str = "sporran-index ";
const HEADER: &str = "header";

/// What an index is and of which files it consists.
pub(crate) trait Header: Serialize + DeserializeOwned {
    /// Version of the format; an index of any other is refused.
    const VERSION: u32;

    /// What kind of index.
    fn kind(&self) -> &str;

    /// Hash of the passages.
    fn passages_hash(&self) -> &str;

    /// The files beside the header.
    fn sections(&self) -> &[Section];
}

/// A file of an index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Section {
    /// Its name in the folder.
    pub(crate) name: String,
    /// Its length.
    pub(crate) bytes: u64,
    /// Its hash.
    pub(crate) blake3: String,
}

/// A folder that becomes an index when it is finished and goes away if it is not.
pub(crate) struct Folder {
    target: PathBuf,
    building: PathBuf,
    /// Whether the folder outlives this value: it is the index now, or somebody will go on with it.
    stays: bool,
}

impl Folder {
    /// Starts an index that will stand at `target`, in place of one that stands there now.
    ///
    /// # Errors
    /// [`Error::InTheWay`] where something else stands there; [`Error::Io`].
    pub(crate) fn create(target: &Path) -> Result<Self> {
        let mut folder = Self::prepare(target)?;
        folder.stays = false;
        let building = &folder.building;
        if building.exists() {
            fs::remove_dir_all(building).map_err(Error::io(building, "remove"))?;
        }
        fs::create_dir_all(building).map_err(Error::io(building, "create"))?;
        Ok(folder)
    }

    /// As [`create`](Self::create), but what a killed build left is still there, and what this one leaves will be.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub(crate) fn resume(target: &Path) -> Result<Self> {
        let folder = Self::prepare(target)?;
        fs::create_dir_all(&folder.building).map_err(Error::io(&folder.building, "create"))?;
        Ok(folder)
    }

    fn prepare(target: &Path) -> Result<Self> {
        let in_the_way = || Error::InTheWay { path: target.to_owned() };
        if target.exists() && !is_index(target) {
            let mut entries = fs::read_dir(target).map_err(|_| in_the_way())?;
            if entries.next().is_some() {
                return Err(in_the_way());
            }
        }
        // A fixed name, so that what a killed build left behind goes away with the next.
        let building = beside(target, "building").ok_or_else(in_the_way)?;
        Ok(Self { target: target.to_owned(), building, stays: true })
    }

    /// A file of the index, or one that is gone before it is finished.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.building.join(name)
    }

    /// Starts a file of the index.
    pub(crate) fn section(&self, name: &'static str) -> Result<SectionWriter> {
        let path = self.path(name);
        let file = File::create(&path).map_err(Error::io(&path, "create"))?;
        let hashing = Hashing { file, hasher: blake3::Hasher::new(), bytes: 0 };
        Ok(SectionWriter { name, path, inner: BufWriter::with_capacity(1 << 18, hashing) })
    }

    /// Writes the header and puts the index in its place.
    pub(crate) fn finish<H: Header>(mut self, header: &H) -> Result<()> {
        let path = self.path(HEADER);
        let body = serde_json::to_string_pretty(header)
            .map_err(|error| Error::Header { path: path.clone(), message: error.to_string() })?;
        let text =
            format!("{MAGIC}{} {}\n{body}\n", H::VERSION, blake3::hash(format!("{body}\n").as_bytes()));
        let mut file = File::create(&path).map_err(Error::io(&path, "create"))?;
        file.write_all(text.as_bytes()).map_err(Error::io(&path, "write"))?;
        file.sync_all().map_err(Error::io(&path, "sync"))?;

        let replaced = beside(&self.target, "replaced").filter(|_| self.target.exists());
        if let Some(replaced) = &replaced {
            if replaced.exists() {
                fs::remove_dir_all(replaced).map_err(Error::io(replaced, "remove"))?;
            }
            fs::rename(&self.target, replaced).map_err(Error::io(&self.target, "rename"))?;
        }
        fs::rename(&self.building, &self.target).map_err(Error::io(&self.target, "rename"))?;
        self.stays = true;
        if let Some(replaced) = &replaced {
            fs::remove_dir_all(replaced).map_err(Error::io(replaced, "remove"))?;
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.stays
            && let Err(error) = fs::remove_dir_all(&self.building)
        {
            tracing::warn!(folder = %self.building.display(), %error, "could not remove an unfinished index");
        }
    }
}

/// `.NAME.suffix` beside a folder; none for a path without a name, such as `/`.
fn beside(target: &Path, suffix: &str) -> Option<PathBuf> {
    let name = target.file_name()?.to_str()?;
    Some(target.with_file_name(format!(".{name}.{suffix}")))
}

fn is_index(folder: &Path) -> bool {
    fs::read(folder.join(HEADER)).is_ok_and(|bytes| bytes.starts_with(MAGIC.as_bytes()))
}

struct Hashing {
    file: File,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Write for Hashing {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.file.write(buffer)?;
        self.hasher.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a file of an index, buffered and hashed.
pub(crate) struct SectionWriter {
    name: &'static str,
    path: PathBuf,
    inner: BufWriter<Hashing>,
}

impl SectionWriter {
    /// Appends bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.inner.write_all(bytes).map_err(|source| Error::Io {
            path: self.path.clone(),
            action: "write",
            source,
        })
    }

    /// Ends the file.
    pub(crate) fn finish(self) -> Result<Section> {
        let path = self.path;
        let hashing =
            self.inner.into_inner().map_err(|error| Error::io(&path, "write")(error.into_error()))?;
        hashing.file.sync_all().map_err(Error::io(&path, "sync"))?;
        Ok(Section {
            name: self.name.to_owned(),
            bytes: hashing.bytes,
            blake3: hashing.hasher.finalize().to_hex().to_string(),
        })
    }
}

/// A mapped file of an index.
pub(crate) struct Mapped {
    map: Option<Mmap>,
    path: PathBuf,
}

impl Mapped {
    /// Maps a file of that length.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Io`].
    pub(crate) fn open(path: PathBuf, expected: u64) -> Result<Self> {
        let file = File::open(&path).map_err(Error::io(&path, "open"))?;
        let found = file.metadata().map_err(Error::io(&path, "read"))?.len();
        if found != expected {
            return Err(Error::Length { path, expected, found });
        }
        let map = if found == 0 {
            None
        } else {
            // SAFETY: the map is read-only, and an index is never written in place: a new one is renamed over it, which
            // leaves this file's content alone. That no other program shortens or changes the file meanwhile is the usual
            // condition of mapping a file, and what the index's documentation asks for. All reads are of plain bytes.
            Some(unsafe { Mmap::map(&file) }.map_err(Error::io(&path, "map"))?)
        };
        Ok(Self { map, path })
    }

    /// Checks that there are as many bytes as the header's counts ask for.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn expect(&self, bytes: usize) -> Result<()> {
        if self.len() == bytes {
            return Ok(());
        }
        Err(self.corrupt(format!("expected {bytes} bytes by the counts of the header, found {}", self.len())))
    }

    /// The error for content that cannot be.
    pub(crate) fn corrupt(&self, message: impl Into<String>) -> Error {
        Error::Corrupt { path: self.path.clone(), message: message.into() }
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

/// Reads and checks the header of the index in a folder: magic, version, its own checksum, kind and passages.
///
/// # Errors
/// [`Error::NotAnIndex`], [`Error::Version`], [`Error::Header`], [`Error::Kind`], [`Error::OtherPassages`] in that order,
/// or [`Error::Io`].
pub(crate) fn read_header<H: Header>(folder: &Path, kind: &'static str, passages_hash: &str) -> Result<H> {
    let path = folder.join(HEADER);
    let bytes = fs::read(&path).map_err(Error::io(&path, "read"))?;
    let damaged = |message: String| Error::Header { path: path.clone(), message };
    let Some(rest) = bytes.strip_prefix(MAGIC.as_bytes()) else {
        let found = String::from_utf8_lossy(&bytes[..bytes.len().min(MAGIC.len())]).into_owned();
        return Err(Error::NotAnIndex { path, expected: MAGIC, found });
    };
    let line_end =
        rest.iter().position(|&byte| byte == b'\n').ok_or_else(|| damaged("it ends early".into()))?;
    let line = String::from_utf8_lossy(&rest[..line_end]);
    let body = &rest[line_end + 1..];
    let (version, hash) = line
        .split_once(' ')
        .ok_or_else(|| damaged(format!("expected a version and a hash, found {line:?}")))?;
    let found = version.parse().map_err(|_| damaged(format!("expected a version, found {version:?}")))?;
    if found != H::VERSION {
        return Err(Error::Version { path, expected: H::VERSION, found });
    }
    let actual = blake3::hash(body).to_hex();
    if hash != actual.as_str() {
        return Err(damaged(format!("expected BLAKE3 {hash}, found {actual}")));
    }
    let header: H = serde_json::from_slice(body).map_err(|error| damaged(error.to_string()))?;
    if header.kind() != kind {
        return Err(Error::Kind { path, expected: kind, found: header.kind().to_owned() });
    }
    if header.passages_hash() != passages_hash {
        return Err(Error::OtherPassages {
            path,
            expected: passages_hash.to_owned(),
            found: header.passages_hash().to_owned(),
        });
    }
    Ok(header)
}

/// Maps a file of an index, which must have the length that the header says.
///
/// # Errors
/// [`Error::Header`] where the header does not list it, [`Error::Length`], [`Error::Io`].
pub(crate) fn map<H: Header>(folder: &Path, header: &H, name: &str) -> Result<Mapped> {
    let path = folder.join(name);
    let section = header.sections().iter().find(|section| section.name == name).ok_or_else(|| {
        Error::Header { path: folder.join(HEADER), message: format!("expected a file {name:?} in its list") }
    })?;
    Mapped::open(path, section.bytes)
}

/// Reads every file of an index and compares its hash with the header's.
///
/// # Errors
/// [`Error::Length`] or [`Error::Corrupt`] for the first file that is not what was written.
pub(crate) fn verify<H: Header>(folder: &Path, header: &H) -> Result<()> {
    for section in header.sections() {
        let mapped = map(folder, header, &section.name)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&mapped);
        let found = hasher.finalize().to_hex();
        if section.blake3 != found.as_str() {
            return Err(mapped.corrupt(format!("expected BLAKE3 {}, found {found}", section.blake3)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Card {
        passages: u32,
        sections: Vec<Section>,
    }

    impl Header for Card {
        const VERSION: u32 = 1;

        fn kind(&self) -> &str {
            "bm25"
        }

        fn passages_hash(&self) -> &str {
            "abc"
        }

        fn sections(&self) -> &[Section] {
            &self.sections
        }
    }

    fn written(folder: &Path) -> Card {
        let building = Folder::create(folder).unwrap();
        let mut data = building.section("data").unwrap();
        data.put(b"0123456789").unwrap();
        let header = Card { passages: 3, sections: vec![data.finish().unwrap()] };
        building.finish(&header).unwrap();
        header
    }

    fn edit(path: &Path, from: &str, to: &str) {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains(from));
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    }

    #[test]
    fn what_was_written_is_read_and_nothing_is_left_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("index");
        // The second time, the first is replaced.
        for _ in 0..2 {
            let header = written(&folder);
            assert_eq!(read_header::<Card>(&folder, "bm25", "abc").unwrap(), header);
            assert_eq!(&*map(&folder, &header, "data").unwrap(), b"0123456789");
            verify(&folder, &header).unwrap();
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn an_unfinished_index_leaves_nothing_and_a_killed_builds_rest_goes_away() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("index");
        let rest = place.path().join(".index.building");
        fs::create_dir(&rest).unwrap();
        fs::write(rest.join("old"), "old").unwrap();
        let building = Folder::create(&folder).unwrap();
        assert!(!rest.join("old").exists());
        building.section("data").unwrap().put(b"0").unwrap();
        drop(building);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        // One that is meant to go on finds what was there.
        let building = Folder::resume(&folder).unwrap();
        building.section("data").unwrap().put(b"0").unwrap();
        drop(building);
        assert!(Folder::resume(&folder).unwrap().path("data").exists());
    }

    #[test]
    fn a_folder_that_is_no_index_is_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("thesis.tex"), "years of work").unwrap();
        assert!(matches!(Folder::create(place.path()), Err(Error::InTheWay { .. })));
        assert!(place.path().join("thesis.tex").exists());
    }

    #[test]
    fn every_way_a_header_can_be_wrong_has_its_error() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("index");
        let header = folder.join(HEADER);
        let read = || read_header::<Card>(&folder, "bm25", "abc").unwrap_err();

        assert!(matches!(read(), Error::Io { action: "read", .. }));
        written(&folder);
        edit(&header, "sporran-index", "somebody-else");
        assert!(matches!(read(), Error::NotAnIndex { found, .. } if found == "somebody-else "));
        written_again(&folder);
        edit(&header, "sporran-index 1 ", "sporran-index 9 ");
        assert!(matches!(read(), Error::Version { expected: 1, found: 9, .. }));
        written_again(&folder);
        edit(&header, "\"passages\": 3", "\"passages\": 4");
        assert!(matches!(read(), Error::Header { message, .. } if message.contains("BLAKE3")));
        fs::write(&header, "sporran-index 1").unwrap();
        assert!(matches!(read(), Error::Header { .. }));
        written_again(&folder);
        let found = read_header::<Card>(&folder, "tfidf", "abc").unwrap_err();
        assert!(matches!(found, Error::Kind { expected: "tfidf", found, .. } if found == "bm25"));
        let found = read_header::<Card>(&folder, "bm25", "abd").unwrap_err();
        assert!(
            matches!(found, Error::OtherPassages { expected, found, .. } if expected == "abd" && found == "abc")
        );
    }

    fn written_again(folder: &Path) {
        fs::remove_dir_all(folder).unwrap();
        written(folder);
    }

    #[test]
    fn a_file_that_was_cut_off_or_changed_is_named() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("index");
        let header = written(&folder);
        fs::write(folder.join("data"), "0123456780").unwrap();
        map(&folder, &header, "data").unwrap();
        let error = verify(&folder, &header).unwrap_err();
        assert!(matches!(&error, Error::Corrupt { path, .. } if path.ends_with("data")), "{error}");
        fs::write(folder.join("data"), "012345678").unwrap();
        let error = map(&folder, &header, "data").err().unwrap();
        assert!(matches!(error, Error::Length { expected: 10, found: 9, .. }));
        fs::remove_file(folder.join("data")).unwrap();
        assert!(matches!(map(&folder, &header, "data"), Err(Error::Io { action: "open", .. })));
    }
}
