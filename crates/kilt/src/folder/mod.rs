//! Folders that one process builds and others map: stores and indexes.
//!
//! A folder `NAME` is built under a temporary name next to its path and then renamed, so it is never
//! incomplete:
//!
//! | path | content |
//! |---|---|
//! | `.NAME.building.lock` | a file that is locked while a process builds `NAME`; its text names the process |
//! | `.NAME.building.held` | replaces that lock on file systems without locks |
//! | `.NAME.building` | the folder that is being built |
//! | `.NAME.replaced` | the previous folder `NAME`, until the new one has its name; only if the system cannot exchange two folders in one step |
//!
//! A process that finds the lock taken waits until the other process ends. Then [`Place::vacant`] returns
//! whether there is still something to build. The next build in the same parent folder removes leftovers of
//! killed processes. A resumable build is kept; it has a file named [`JOURNAL`] in its folder. A kill never
//! loses the previous folder: [`restore`] restores it.
//!
//! A finished folder lists the length and the BLAKE3 hash of its files in a header. [`Contents`] compares
//! them. A [`ShardManifest`] does so for a part of some work, and [`ShardSet`] has all parts.

mod contents;
mod exchange;
mod lock;
mod place;
mod shard;

pub use contents::{Contents, File, STAMP};
pub(crate) use exchange::{put_back, replace};
pub use lock::Lock;
pub use place::{Building, JOURNAL, Leftover, Place, clear_abandoned, leftovers, restore};
pub use shard::{MANIFEST as SHARD_MANIFEST, Shard, ShardManifest, ShardRange, ShardSet};

use std::{fs, io, path::Path};

use crate::{Error, Result};

/// Creates a folder and its missing parents.
///
/// # Errors
/// [`Error::NotAFolder`] if one of them is a file; [`Error::Io`] if the system refuses.
pub fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| match folder.ancestors().find(|path| path.exists()) {
        Some(path) if !path.is_dir() => Error::NotAFolder { path: path.to_owned() },
        _ => Error::io(folder, "create", error),
    })
}

/// Waits until the names of a folder's files are on disk. A file that was renamed into the folder has its name after a power
/// failure only then. File systems that cannot do this are left as they are.
///
/// # Errors
/// [`Error::Io`] if the system refuses.
pub fn sync(folder: &Path) -> Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    // Only there can a folder be opened as a file.
    let synced = if cfg!(unix) { fs::File::open(folder).and_then(|file| file.sync_all()) } else { Ok(()) };
    match synced {
        Err(error) if !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Err(Error::io(folder, "sync", error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_folder_are_synced() {
        let place = tempfile::tempdir().unwrap();
        sync(place.path()).unwrap();
        sync(Path::new("")).unwrap();
        let error = sync(&place.path().join("none")).unwrap_err();
        assert!(matches!(error, Error::Io { action: "sync", .. }), "{error}");
    }

    #[test]
    fn a_file_in_the_place_of_a_folder_is_named() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("indexes");
        make(&place.path().join("a/b")).unwrap();
        fs::write(&file, "").unwrap();
        for folder in [file.clone(), file.join("store/x")] {
            let error = make(&folder).unwrap_err();
            assert!(
                matches!(&error, Error::NotAFolder { path } if *path == file) && error.is_input(),
                "{error}"
            );
        }
        assert!(matches!(Place::vacant(&file.join("store")), Err(Error::NotAFolder { .. })));
    }
}
