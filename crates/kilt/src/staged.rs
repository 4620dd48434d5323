//! Folders that are written atomically, and leftovers of interrupted writes.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::{
    Error, Result,
    folder::{self, Lock, make, put_back, replace},
    jsonl::TEMPORARY,
};

/// The ending of hidden folders for writing.
const UNFINISHED: &str = ".unfinished";
/// The prefix of folders that a training writes before it renames them.
const TEMPORARY_FOLDER: &str = ".unfinished-";
/// Its contents: the writing process's lock, the new content, and the previous folder.
const LOCK: &str = "lock";
const NEW: &str = "new";
const OLD: &str = "old";

/// A folder that appears at its path only when it is complete. An existing folder stays until then.
///
/// It is written in a hidden folder next to its path, `.NAME.unfinished`. If it is dropped without
/// [`commit`](Self::commit), nothing remains. The next write of the same folder removes leftovers of a killed
/// process.
#[derive(Debug)]
pub struct StagedFolder {
    target: PathBuf,
    hidden: PathBuf,
    /// Released last.
    _lock: Lock,
}

impl StagedFolder {
    /// Starts a folder. Missing parents are created.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails, if `target` has no name, or if another process is writing it.
    pub fn create(target: impl AsRef<Path>) -> Result<Self> {
        let target = target.as_ref();
        let failed = |source| Error::io(target, "write", source);
        let hidden = hidden(target).ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
        make(&hidden)?;
        let lock = Lock::try_take(&hidden.join(LOCK))?.ok_or_else(|| {
            failed(io::Error::new(io::ErrorKind::ResourceBusy, "another process is writing this folder"))
        })?;
        put_back(target, &hidden.join(OLD)).map_err(failed)?;
        let staged = Self { target: target.to_owned(), hidden, _lock: lock };
        for name in [NEW, OLD] {
            match fs::remove_dir_all(staged.hidden.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        fs::create_dir(staged.path()).map_err(failed)?;
        Ok(staged)
    }

    /// Whether the folder `target` does not exist yet, but a running or killed process has started to write
    /// it.
    #[must_use]
    pub fn is_unfinished(target: &Path) -> bool {
        !target.exists() && hidden(target).is_some_and(|hidden| hidden.is_dir())
    }

    /// The folder for its files.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.hidden.join(NEW)
    }

    /// Moves the folder to its path and replaces an existing one.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails; then the previous folder is unchanged.
    pub fn commit(self) -> Result<()> {
        let Self { target, hidden, .. } = &self;
        sync(&self.path())?;
        replace(&self.path(), target, &hidden.join(OLD))
            .map_err(|error| Error::io(target, "rename", error))?;
        folder::sync(target.parent().unwrap_or(Path::new("")))
    }
}

/// The folder in which `target` is written; none for a path without a name.
fn hidden(target: &Path) -> Option<PathBuf> {
    let name = target.file_name()?;
    Some(target.with_file_name(format!(".{}{UNFINISHED}", name.to_string_lossy())))
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.hidden) {
            tracing::warn!(folder = %self.hidden.display(), %error, "could not remove an unfinished folder");
        }
    }
}

/// Flushes all files of a folder to disk.
fn sync(folder: &Path) -> Result<()> {
    let failed = |source| Error::io(folder, "write", source);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            sync(&path)?;
        } else {
            File::open(&path)
                .and_then(|file| file.sync_all())
                .map_err(|error| Error::io(&path, "write", error))?;
        }
    }
    folder::sync(folder)
}

/// Removes leftovers of killed processes in a folder and its visible subfolders: temporary files and
/// unfinished folders. No other process may write there without a lock. A missing folder has no leftovers.
///
/// # Errors
/// [`Error::Io`] if a folder cannot be read or something cannot be removed.
pub fn remove_leftovers(folder: &Path) -> Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(folder, "read", error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| Error::io(folder, "read", error))?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let kind = entry.file_type().map_err(|error| Error::io(&path, "read", error))?;
        let removed = |result: io::Result<()>| result.map_err(|error| Error::io(&path, "remove", error));
        if kind.is_file() && name.starts_with(TEMPORARY) {
            removed(fs::remove_file(&path))?;
        }
        if !kind.is_dir() {
            continue;
        }
        if name.starts_with(TEMPORARY_FOLDER) {
            removed(fs::remove_dir_all(&path))?;
        } else if let Some(of) = name.strip_prefix('.').and_then(|name| name.strip_suffix(UNFINISHED)) {
            // It stays if a process is writing it.
            if let Some(_lock) = Lock::try_take(&path.join(LOCK))? {
                removed(put_back(&folder.join(of), &path.join(OLD)).and_then(|_| fs::remove_dir_all(&path)))?;
            }
        } else if !name.starts_with('.') {
            remove_leftovers(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> String {
        fs::read_to_string(path.join("a/b")).unwrap_or_default()
    }

    fn write(folder: &Path, text: &str) {
        fs::create_dir_all(folder.join("a")).unwrap();
        fs::write(folder.join("a/b"), text).unwrap();
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_appears_whole_and_the_one_before_stays_until_then() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("x/model");
        assert!(!StagedFolder::is_unfinished(&target));
        let staged = StagedFolder::create(&target).unwrap();
        write(&staged.path(), "first");
        assert!(!target.exists() && StagedFolder::is_unfinished(&target));
        let error = StagedFolder::create(&target).unwrap_err().to_string();
        assert!(error.contains("model"), "{error}");
        staged.commit().unwrap();
        assert_eq!(text(&target), "first");
        assert!(!StagedFolder::is_unfinished(&target));
        let staged = StagedFolder::create(&target).unwrap();
        fs::write(staged.path().join("c"), "").unwrap();
        drop(staged);
        assert_eq!(text(&target), "first");
        let staged = StagedFolder::create(&target).unwrap();
        write(&staged.path(), "second");
        staged.commit().unwrap();
        assert_eq!(
            (text(&target).as_str(), names(&target), names(&place.path().join("x"))),
            ("second", vec!["a".into()], vec!["model".into()])
        );
        assert!(StagedFolder::create("..").is_err());
    }

    #[test]
    fn a_kill_between_two_renamings_loses_nothing() {
        let place = tempfile::tempdir().unwrap();
        let (target, hidden) = (place.path().join("model"), place.path().join(".model.unfinished"));
        let kill = || {
            write(&hidden.join(OLD), "old");
            write(&hidden.join(NEW), "new");
            fs::write(hidden.join(LOCK), "").unwrap();
        };
        kill();
        drop(StagedFolder::create(&target).unwrap());
        assert_eq!((text(&target).as_str(), hidden.exists()), ("old", false));
        fs::remove_dir_all(&target).unwrap();
        kill();
        remove_leftovers(place.path()).unwrap();
        assert_eq!((text(&target).as_str(), hidden.exists()), ("old", false));
    }

    #[test]
    fn leftovers_go_away_in_every_folder_and_what_is_at_work_or_hidden_stays() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        for folder in [
            "predictions",
            "fold-0/model",
            ".sporran-store-x",
            "training/checkpoint-1",
            "model/.unfinished-y",
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let files = [
            ".sporran-a",
            "predictions/.sporran-b",
            "fold-0/model/.sporran-c",
            ".sporran-store-x/.sporran-d",
            "model/.unfinished-y/w",
        ];
        for file in files {
            fs::write(root.join(file), "half").unwrap();
        }
        fs::write(root.join("predictions/p.jsonl"), "{}").unwrap();
        write(&root.join(".model.unfinished/new"), "half");
        let at_work = StagedFolder::create(root.join("fold-0/other")).unwrap();
        write(&at_work.path(), "half");
        remove_leftovers(root).unwrap();
        assert_eq!(names(root), [".sporran-store-x", "fold-0", "model", "predictions", "training"]);
        assert_eq!(names(&root.join("fold-0")), [".other.unfinished", "model"]);
        assert!(names(&root.join("fold-0/model")).is_empty() && names(&root.join("model")).is_empty());
        assert_eq!(names(&root.join("predictions")), ["p.jsonl"]);
        assert_eq!(text(&at_work.path()), "half");
        remove_leftovers(&root.join("none")).unwrap();
    }
}
