//! The folder that a store is built in, before it is renamed to its place.

use std::{
    fs::{self, File, TryLockError},
    path::Path,
};

use tempfile::TempDir;

use crate::{Error, Result};

const PREFIX: &str = ".sporran-store-";
/// An empty file that is locked while its folder is in use; the system unlocks it when the process ends, however it ends.
const LOCK: &str = "building";

/// A hidden folder beside the store's place, gone when it is dropped.
pub(super) struct Scratch {
    folder: TempDir,
    lock: File,
}

impl Scratch {
    /// Makes a folder in `parent`, and removes those that builds left there when they were killed.
    ///
    /// # Errors
    /// [`Error::Io`] where the disk refuses.
    pub(super) fn create(parent: &Path) -> Result<Self> {
        remove_leftovers(parent);
        let failed = |source| Error::io(parent, "write", source);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(failed)?;
        // Locked before it has its name, so that no one meets it unlocked.
        let unnamed = folder.path().join("new");
        let lock = File::create(&unnamed).map_err(failed)?;
        lock.lock().map_err(failed)?;
        fs::rename(&unnamed, folder.path().join(LOCK)).map_err(failed)?;
        Ok(Self { folder, lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Puts the folder in its place, instead of one that is there.
    pub(super) fn rename(self, target: &Path) -> Result<()> {
        let Self { folder, lock } = self;
        if target.exists() {
            fs::remove_dir_all(target).map_err(|source| Error::io(target, "write", source))?;
        }
        // From here on it would not be known as a leftover, so this comes as late as it can.
        fs::remove_file(folder.path().join(LOCK)).map_err(|source| Error::io(target, "write", source))?;
        fs::rename(folder.path(), target).map_err(|source| Error::io(target, "rename", source))?;
        drop(lock);
        // It is no longer where it would be removed from.
        let _ = folder.keep();
        Ok(())
    }
}

/// Removes the folders of builds that are no longer at work. What cannot be removed stays: it is in nobody's way.
fn remove_leftovers(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let folder = entry.path();
        // Without the file it is not one of ours, or so new that it has none yet.
        let Ok(lock) = File::open(folder.join(LOCK)) else { continue };
        let removed = match lock.try_lock() {
            Ok(()) => fs::remove_dir_all(&folder),
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(error)) => Err(error),
        };
        match removed {
            Ok(()) => tracing::info!(folder = %folder.display(), "removed what a killed build left"),
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "could not remove what a killed build left");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_build_left_goes_away_and_nothing_else_does() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = place.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("text.bin"), "text").unwrap();
            folder
        };
        let killed = folder(".sporran-store-killed");
        fs::write(killed.join(LOCK), "").unwrap();
        let foreign = folder(".sporran-store-foreign");
        let store = folder("store-1");
        fs::write(store.join(LOCK), "").unwrap();
        let at_work = Scratch::create(place.path()).unwrap();
        assert!(!killed.exists());
        let another = Scratch::create(place.path()).unwrap();
        assert!(at_work.path().join(LOCK).exists() && foreign.exists() && store.exists());
        let (target, gone) = (place.path().join("store-1"), at_work.path().to_owned());
        fs::write(at_work.path().join("new.bin"), "new").unwrap();
        at_work.rename(&target).unwrap();
        assert!(!gone.exists() && !target.join("text.bin").exists() && !target.join(LOCK).exists());
        assert!(target.join("new.bin").exists());
        let unfinished = another.path().to_owned();
        drop(another);
        assert!(!unfinished.exists());
    }
}
