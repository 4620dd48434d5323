//! The folder of an index: a header and the files that it describes.
//!
//! The file `header` is text. Its first line is `sporran-index VERSION BLAKE3`, with the hash of the rest. A
//! JSON object follows, a [`Header`], with the length and the hash of every other file. All numbers in the
//! other files are little-endian. See [`sporran_kilt::folder`] for building and verification.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    ops::Deref,
    path::{Path, PathBuf},
};

use memmap2::Mmap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sporran_kilt::{
    folder::{self, Building, Contents, Place},
    jsonl::plain_json,
};

use crate::{Error, Result};

const MAGIC: &str = "sporran-index ";
const HEADER: &str = "header";

/// The description of an index and its files.
pub(crate) trait Header: Serialize + DeserializeOwned {
    /// Version of the format; other versions are rejected.
    const VERSION: u32;

    /// What kind of index.
    fn kind(&self) -> &str;

    /// Hash of the passages.
    fn passages_hash(&self) -> &str;

    /// The other files of the folder.
    fn sections(&self) -> &[Section];
}

/// Implements [`Header`] of a version for a type with the fields `kind`, `passages_hash` and `sections`.
macro_rules! header {
    ($header:ty, $version:literal) => {
        impl $crate::layout::Header for $header {
            const VERSION: u32 = $version;

            fn kind(&self) -> &str {
                &self.kind
            }

            fn passages_hash(&self) -> &str {
                &self.passages_hash
            }

            fn sections(&self) -> &[$crate::layout::Section] {
                &self.sections
            }
        }
    };
}
pub(crate) use header;

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

/// The folder of an index during its build; removed if it is not finished.
pub(crate) struct Folder(Building);

impl Folder {
    /// Starts an index of a kind, after waiting for a process that builds one at the same path.
    ///
    /// # Errors
    /// [`sporran_kilt::Error::InTheWay`] if anything but an index of this kind exists there, [`sporran_kilt::Error::Io`].
    pub(crate) fn create(kind: &str, place: Place) -> Result<Self> {
        Ok(Self(Building::create(place, |folder| may_replace(kind, folder))?))
    }

    /// As [`create`](Self::create), but resumes a killed build, and keeps the folder if this one is not
    /// finished.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub(crate) fn resume(kind: &str, place: Place) -> Result<Self> {
        Ok(Self(Building::resume(place, |folder| may_replace(kind, folder))?))
    }

    /// A file of the index, or a temporary one.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    /// Starts a file of the index.
    pub(crate) fn section(&self, name: &'static str) -> Result<SectionWriter> {
        let path = self.path(name);
        let file = File::create(&path).map_err(Error::io(&path, "create"))?;
        let hashing = Hashing { file, hasher: blake3::Hasher::new(), bytes: 0 };
        Ok(SectionWriter { name, path, inner: BufWriter::with_capacity(1 << 18, hashing) })
    }

    /// Takes a file of the index that other code wrote: waits until it is on disk, and hashes it.
    pub(crate) fn written(&self, name: &'static str) -> Result<Section> {
        let path = self.path(name);
        let file = File::open(&path).map_err(Error::io(&path, "open"))?;
        file.sync_all().map_err(Error::io(&path, "sync"))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file).map_err(Error::io(&path, "read"))?;
        Ok(Section {
            name: name.to_owned(),
            bytes: hasher.count(),
            blake3: hasher.finalize().to_hex().to_string(),
        })
    }

    /// Writes the header and moves the index to its path.
    pub(crate) fn finish<H: Header>(self, header: &H) -> Result<()> {
        let path = self.path(HEADER);
        let body = serde_json::to_string_pretty(header)
            .map_err(|error| Error::Header { path: path.clone(), message: error.to_string() })?;
        let text =
            format!("{MAGIC}{} {}\n{body}\n", H::VERSION, blake3::hash(format!("{body}\n").as_bytes()));
        let mut file = File::create(&path).map_err(Error::io(&path, "create"))?;
        file.write_all(text.as_bytes()).map_err(Error::io(&path, "write"))?;
        file.sync_all().map_err(Error::io(&path, "sync"))?;
        self.0.finish()?;
        Ok(())
    }
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

/// A memory-mapped file of an index.
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
            // SAFETY: the map is read-only, and an index is never written in place. A new one is renamed over
            // it, which keeps this file's content. Other programs must not truncate or change the file, as
            // usual for memory-mapped files; the index's documentation requires that. All reads are of plain
            // bytes.
            Some(unsafe { Mmap::map(&file) }.map_err(Error::io(&path, "map"))?)
        };
        Ok(Self { map, path })
    }

    /// Checks the number of bytes against the header's counts.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn expect(&self, bytes: usize) -> Result<()> {
        if self.len() == bytes {
            return Ok(());
        }
        Err(self.corrupt(format!("expected {bytes} bytes by the counts of the header, found {}", self.len())))
    }

    /// The error for invalid content.
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

/// Reads and checks the header of the index in a folder: magic, version, checksum, kind and passages.
///
/// # Errors
/// [`Error::NotAnIndex`], [`Error::Version`], [`Error::Header`], [`Error::Kind`], [`Error::OtherPassages`] in that order,
/// or [`Error::Io`].
fn read_header<H: Header>(folder: &Path, kind: &'static str, passages_hash: &str) -> Result<H> {
    let (path, header) = parse_header::<H>(folder, Some(H::VERSION))?;
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

/// Reads a header of one version or of any, and verifies its checksum.
fn parse_header<H: DeserializeOwned>(folder: &Path, version: Option<u32>) -> Result<(PathBuf, H)> {
    folder::restore(folder);
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
    let (found, hash) = line
        .split_once(' ')
        .ok_or_else(|| damaged(format!("expected a version and a hash, found {line:?}")))?;
    let found = found.parse().map_err(|_| damaged(format!("expected a version, found {found:?}")))?;
    if let Some(expected) = version.filter(|version| *version != found) {
        return Err(Error::Version { path, expected, found });
    }
    let actual = blake3::hash(body).to_hex();
    if hash != actual.as_str() {
        return Err(damaged(format!("the checksum is wrong: expected BLAKE3 {hash}, found {actual}")));
    }
    let header = serde_json::from_slice(body).map_err(|error| damaged(plain_json(&error.to_string())))?;
    Ok((path, header))
}

/// The mapped files of an index during opening.
pub(crate) struct Files {
    folder: PathBuf,
    mapped: Vec<(String, Mapped)>,
}

impl Files {
    /// The folder of the index.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes a file by name.
    ///
    /// # Errors
    /// [`Error::Header`] if the header does not list it.
    pub(crate) fn take(&mut self, name: &str) -> Result<Mapped> {
        let at = self.mapped.iter().position(|(listed, _)| listed == name).ok_or_else(|| Error::Header {
            path: self.folder.join(HEADER),
            message: format!("expected a file {name:?} in its list"),
        })?;
        Ok(self.mapped.swap_remove(at).1)
    }
}

/// Reads the header of an index, maps its files, and verifies their checksums (see [`Contents::check`]).
///
/// # Errors
/// Those of [`read_header`], [`Error::Length`] for a file of another length, [`Error::Io`] for a missing one, and
/// [`sporran_kilt::Error::Checksum`] for a damaged one.
pub(crate) fn open<H: Header>(folder: &Path, kind: &'static str, passages_hash: &str) -> Result<(H, Files)> {
    let (header, files) = open_unchecked::<H>(folder, kind, passages_hash)?;
    check(folder, &header)?;
    Ok((header, files))
}

/// Verifies the checksums of an index's files (see [`Contents::check`]).
///
/// # Errors
/// [`sporran_kilt::Error::Checksum`] for the first damaged file, [`sporran_kilt::Error::Io`].
pub(crate) fn check<H: Header>(folder: &Path, header: &H) -> Result<()> {
    Ok(contents(folder, header.sections()).check()?)
}

/// As [`open`], without verifying the files' content.
pub(crate) fn open_unchecked<H: Header>(
    folder: &Path,
    kind: &'static str,
    passages_hash: &str,
) -> Result<(H, Files)> {
    let header: H = read_header(folder, kind, passages_hash)?;
    let map = |section: &Section| {
        Ok((section.name.clone(), Mapped::open(folder.join(&section.name), section.bytes)?))
    };
    let mapped = header.sections().iter().map(map).collect::<Result<_>>()?;
    Ok((header, Files { folder: folder.to_owned(), mapped }))
}

/// As [`open_unchecked`], for an index over any passages.
pub(crate) fn open_part<H: Header>(folder: &Path, kind: &'static str) -> Result<(H, Files)> {
    let (_, header) = parse_header::<H>(folder, Some(H::VERSION))?;
    let passages_hash = header.passages_hash().to_owned();
    open_unchecked(folder, kind, &passages_hash)
}

/// Reads every file of an index and compares its hash with the header's.
///
/// # Errors
/// [`sporran_kilt::Error::Checksum`] for the first damaged file, [`sporran_kilt::Error::Io`].
pub(crate) fn verify<H: Header>(folder: &Path, header: &H) -> Result<()> {
    Ok(contents(folder, header.sections()).verify()?)
}

/// The result of [`verify_index`] for an index of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedIndex {
    /// Its kind: `bm25`, `tfidf`, `dense`, `aliases`, `titles`.
    pub kind: String,
    /// Length of all files except the header.
    pub bytes: u64,
}

/// The common part of all headers.
#[derive(Deserialize)]
struct AnyHeader {
    kind: String,
    sections: Vec<Section>,
}

/// Whether a folder is an index of any kind.
#[must_use]
pub fn is_index(folder: &Path) -> bool {
    File::open(folder.join(HEADER)).is_ok_and(|mut file| {
        let mut start = [0; MAGIC.len()];
        file.read_exact(&mut start).is_ok() && start == *MAGIC.as_bytes()
    })
}

/// Whether a new index of this kind may replace a folder: an index of the same kind, or one whose header is damaged.
fn may_replace(kind: &str, folder: &Path) -> bool {
    is_index(folder)
        && parse_header::<AnyHeader>(folder, None).map_or(true, |(_, header)| header.kind == kind)
}

/// Reads every file of an index of any kind and version, and compares it with its checksum.
///
/// # Errors
/// [`Error::NotAnIndex`], [`Error::Header`], [`Error::Length`], [`Error::Io`], [`sporran_kilt::Error::Checksum`].
pub fn verify_index(folder: &Path) -> Result<VerifiedIndex> {
    let (_, AnyHeader { kind, sections }) = parse_header(folder, None)?;
    for section in &sections {
        Mapped::open(folder.join(&section.name), section.bytes)?;
    }
    let contents = contents(folder, &sections);
    contents.verify()?;
    Ok(VerifiedIndex { kind, bytes: contents.bytes() })
}

fn contents<'a>(folder: &'a Path, sections: &'a [Section]) -> Contents<'a> {
    let file = |section: &'a Section| folder::File {
        name: &section.name,
        bytes: section.bytes,
        blake3: &section.blake3,
    };
    Contents::new(folder, sections.iter().map(file))
}

/// Calls `look` after each of many seeded damages to each file of an index except its header; lengths stay.
#[cfg(test)]
pub(crate) fn damage_each(folder: &Path, look: impl Fn()) {
    use rand::{Rng, SeedableRng};

    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        if path.ends_with(HEADER) || bytes.is_empty() {
            continue;
        }
        for round in 0..60 {
            let mut damaged = bytes.clone();
            let from = rng.random_range(0..bytes.len());
            let to = (from + [1, 8, bytes.len()][round % 3]).min(bytes.len());
            damaged[from..to].fill_with(|| rng.random());
            fs::write(&path, damaged).unwrap();
            look();
        }
        fs::write(&path, &bytes).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Card {
        kind: String,
        passages: u32,
        sections: Vec<Section>,
    }

    impl Header for Card {
        const VERSION: u32 = 1;

        fn kind(&self) -> &str {
            &self.kind
        }

        fn passages_hash(&self) -> &str {
            "abc"
        }

        fn sections(&self) -> &[Section] {
            &self.sections
        }
    }

    fn written(folder: &Path) -> Card {
        let building = Folder::create("bm25", folder.into()).unwrap();
        let mut data = building.section("data").unwrap();
        data.put(b"0123456789").unwrap();
        let header = Card { kind: "bm25".into(), passages: 3, sections: vec![data.finish().unwrap()] };
        building.finish(&header).unwrap();
        header
    }

    fn edit(path: &Path, from: &str, to: &str) {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains(from));
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    }

    #[test]
    fn what_was_written_is_read() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("index");
        assert!(!is_index(&folder));
        let header = written(&folder);
        let (found, mut files) = open::<Card>(&folder, "bm25", "abc").unwrap();
        assert_eq!(found, header);
        assert_eq!(&*files.take("data").unwrap(), b"0123456789");
        assert!(matches!(files.take("more"), Err(Error::Header { .. })));
        verify(&folder, &header).unwrap();
        assert!(is_index(&folder));
        for (kind, path) in [("bm25", place.path()), ("dense", folder.as_path())] {
            for started in [Folder::create(kind, path.into()), Folder::resume(kind, path.into())] {
                assert!(matches!(started, Err(Error::Kilt(sporran_kilt::Error::InTheWay { .. }))), "{kind}");
            }
        }
        assert!(Folder::create("bm25", (&folder).into()).is_ok());
        edit(&folder.join(HEADER), "bm25", "bm99");
        assert!(Folder::create("dense", (&folder).into()).is_ok());
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
    fn a_file_of_other_code_is_taken_as_one_of_ours() {
        let place = tempfile::tempdir().unwrap();
        let building = Folder::create("bm25", place.path().join("index").into()).unwrap();
        let mut data = building.section("data").unwrap();
        data.put(b"0123456789").unwrap();
        let ours = data.finish().unwrap();
        assert_eq!(building.written("data").unwrap(), ours);
        assert!(matches!(building.written("none"), Err(Error::Io { action: "open", .. })));
    }

    #[test]
    fn a_file_that_was_cut_off_or_changed_is_named() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("index");
        let header = written(&folder);
        let opened = || open::<Card>(&folder, "bm25", "abc").err().unwrap();
        fs::write(folder.join("data"), "0123456780").unwrap();
        open_unchecked::<Card>(&folder, "bm25", "abc").unwrap();
        for error in [opened(), verify(&folder, &header).unwrap_err(), verify_index(&folder).unwrap_err()] {
            let Error::Kilt(sporran_kilt::Error::Checksum { path, folder: damaged, .. }) = &error else {
                panic!("{error}")
            };
            assert!(path.ends_with("data") && *damaged == folder, "{error}");
        }
        fs::write(folder.join("data"), "012345678").unwrap();
        assert!(matches!(opened(), Error::Length { expected: 10, found: 9, .. }));
        assert!(matches!(verify_index(&folder), Err(Error::Length { .. })));
        fs::remove_file(folder.join("data")).unwrap();
        assert!(matches!(opened(), Error::Io { action: "open", .. }));
    }
}
