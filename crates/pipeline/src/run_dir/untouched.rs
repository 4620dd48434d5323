//! The removal of what a call wrote into a run's folder before it failed without any work done.
//!
//! A call writes its lock, its config and its marks before its first result. If it fails then, a later call has nothing to
//! resume, and the folder becomes what it was.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{
    folder::{ANSWERS, CONFIG, LOCK, TRAINING_KEY, WORK, WRITTEN},
    journal::Journal,
    training::SEARCHES,
};

/// The content of a folder before a call.
pub(super) struct Before {
    content: Content,
    /// The folders that the call makes: the run's folder and those above it. The innermost is the first.
    made: Vec<PathBuf>,
}

/// The paths in a folder, relative to it.
#[derive(Default)]
struct Content {
    files: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
}

impl Content {
    fn of(root: &Path) -> Self {
        let mut content = Self::default();
        content.add(root, Path::new(""));
        content
    }

    /// Adds the content of a subfolder. One that cannot be read counts as empty, and then it is not removed either.
    fn add(&mut self, root: &Path, folder: &Path) {
        for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
            let path = folder.join(entry.file_name());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.add(root, &path);
                self.folders.insert(path);
            } else {
                self.files.insert(path);
            }
        }
    }
}

impl Before {
    pub(super) fn of(root: &Path) -> Self {
        let is_new = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made = root.ancestors().take_while(is_new).map(Path::to_owned).collect();
        Self { content: Content::of(root), made }
    }

    /// Removes the files of the call. Returns whether it did: not if there were results, or if there is work to resume.
    pub(super) fn remove_files(&self, root: &Path) -> bool {
        let is_answer = |path: &PathBuf| {
            path.iter().next().is_some_and(|first| ANSWERS.iter().any(|name| first == *name))
        };
        // The config and the mark are about the results of the earlier call as well.
        if self.content.files.iter().any(is_answer) {
            return false;
        }
        let files = Content::of(root).files;
        let new: Vec<&PathBuf> = files.difference(&self.content.files).collect();
        if !new.iter().all(|path| is_own(root, path)) {
            return false;
        }
        // The lock is the last: without it another call can write here.
        let is_lock = |path: &&PathBuf| path.starts_with(WORK) && path.file_stem() == Some(LOCK.as_ref());
        let (locks, others): (Vec<&PathBuf>, Vec<&PathBuf>) = new.into_iter().partition(is_lock);
        for path in others.into_iter().chain(locks) {
            remove(fs::remove_file(root.join(path)), path);
        }
        true
    }

    /// Removes the empty folders that the call made.
    pub(super) fn remove_folders(&self, root: &Path) {
        let folders = Content::of(root).folders;
        // Subfolders are after the folders that they are in.
        for path in folders.iter().rev().filter(|path| !self.content.folders.contains(*path)) {
            let _ = fs::remove_dir(root.join(path));
        }
        for path in &self.made {
            let _ = fs::remove_dir(path);
        }
    }
}

fn remove(removed: std::io::Result<()>, path: &Path) {
    if let Err(error) = removed {
        tracing::warn!(file = %path.display(), %error, "could not remove a file of a call that failed");
    }
}

/// Whether a file is one that every call writes, and not a result or finished work.
fn is_own(root: &Path, path: &Path) -> bool {
    if path == Path::new(CONFIG) {
        return true;
    }
    let Some(name) = path.strip_prefix(WORK).ok().and_then(Path::to_str) else { return false };
    match name {
        LOCK | TRAINING_KEY | WRITTEN => true,
        _ if name.ends_with(".unfinished") => true,
        _ if name == SEARCHES || name.ends_with(".journal") => {
            Journal::progress(&root.join(path)).is_none_or(|done| done.records == 0)
        }
        // The file that replaces a lock goes with it.
        _ => Path::new(name) == Path::new(LOCK).with_extension("held"),
    }
}
