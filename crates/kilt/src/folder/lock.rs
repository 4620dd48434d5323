//! A lock that one process at a time holds, as a file.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// How the text in a lock's file begins.
const MAGIC: &str = "sporran build, process ";

/// How often a file that the system cannot lock is looked at.
const PAUSE: Duration = Duration::from_millis(200);
/// How often the log says that this process still waits.
const REMINDER: Duration = Duration::from_secs(60);

/// A lock that is held. The file goes away when it is dropped.
///
/// The system releases the lock when the process ends, however it ends; then the file stays, and the next process that
/// takes the lock takes over the file.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// Open as long as the lock is held.
    _file: File,
}

impl Lock {
    /// Takes the lock at `path`, and waits for a process that holds it. The log says so.
    ///
    /// Where the file system has no locks, a file that only one process can create stands for it, with a warning. A
    /// killed process leaves that file, and the log says so to those that wait for it.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be made.
    pub(super) fn take(path: &Path) -> Result<Self> {
        let mut waits = false;
        loop {
            let mut file = open(path, true)?;
            loop {
                match file.try_lock() {
                    Ok(()) => break,
                    Err(TryLockError::WouldBlock) => {}
                    Err(TryLockError::Error(error)) => {
                        tracing::warn!(
                            file = %path.display(), %error,
                            "the file system cannot lock files; a file that only one process can create stands for the lock"
                        );
                        drop(file);
                        let _ = fs::remove_file(path);
                        return Self::create(path);
                    }
                }
                if !std::mem::replace(&mut waits, true) {
                    tracing::warn!(
                        lock = %path.display(),
                        "another process builds this ({}); waiting for it",
                        holder(path).unwrap_or_else(|| "unknown".into())
                    );
                }
                match file.lock() {
                    Ok(()) => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Error::io(path, "lock", error)),
                }
            }
            // The holder before may have removed the file between the opening and the locking.
            if is_at(&file, path) {
                write_holder(&mut file).map_err(|error| Error::io(path, "write", error))?;
                return Ok(Self { path: path.to_owned(), _file: file });
            }
        }
    }

    /// Takes the lock at `path` if a file is there that no process holds.
    pub(super) fn take_abandoned(path: &Path) -> Option<Self> {
        let file = open(path, false).ok()?;
        file.try_lock().ok()?;
        is_at(&file, path).then(|| Self { path: path.to_owned(), _file: file })
    }

    /// Whether a process holds the lock at `path`.
    pub(super) fn is_held(path: &Path) -> bool {
        Self::stand_in(path).exists()
            || open(path, false).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// The file that stands for the lock where the system has none.
    fn stand_in(path: &Path) -> PathBuf {
        path.with_extension("held")
    }

    /// Takes the lock by making a file that only one process can make.
    fn create(path: &Path) -> Result<Self> {
        let path = Self::stand_in(path);
        let mut told: Option<Instant> = None;
        loop {
            match File::options().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    write_holder(&mut file).map_err(|error| Error::io(&path, "write", error))?;
                    return Ok(Self { path, _file: file });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if told.is_none_or(|at| at.elapsed() >= REMINDER) {
                        tracing::warn!(
                            "{}: another process builds this ({}); waiting for it; if it was killed, delete this file",
                            path.display(),
                            holder(&path).unwrap_or_else(|| "unknown".into())
                        );
                        told = Some(Instant::now());
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(Error::io(&path, "create", error)),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while it is still held, so that it is never another process's.
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(file = %self.path.display(), %error, "could not remove the file of a lock");
        }
    }
}

/// The process that a lock's file names; none for a file that is not a lock's.
pub(super) fn holder(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    // A process that was killed at once leaves an empty file.
    if text.is_empty() {
        return Some("unknown".to_owned());
    }
    text.strip_prefix(MAGIC).map(|process| format!("process {}", process.trim()))
}

fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(format!("{MAGIC}{}\n", std::process::id()).as_bytes())
}

fn open(path: &Path, create: bool) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(create).truncate(false);
    options.open(path).map_err(|error| Error::io(path, "open", error))
}

/// Whether `path` still names this open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(open), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Whether `path` still names this open file: here a file that is open cannot be removed.
#[cfg(not(unix))]
fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// How many threads hold a lock at the same time, at most, where each takes it `rounds` times.
    fn most_holders(take: impl Fn() -> Lock + Sync, rounds: usize) -> usize {
        let (holders, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let lock = take();
                        most.fetch_max(holders.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        holders.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        most.into_inner()
    }

    #[test]
    fn one_at_a_time_holds_a_lock_and_its_file_goes_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".index.building.lock");
        assert_eq!(most_holders(|| Lock::take(&path).unwrap(), 200), 1);
        // The stand-in of file systems without locks does the same.
        assert_eq!(most_holders(|| Lock::create(&path).unwrap(), 2), 1);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_file_of_a_killed_process_is_taken_over_and_a_held_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".index.building.lock");
        assert!(Lock::take_abandoned(&path).is_none());
        fs::write(&path, format!("{MAGIC}4711\n")).unwrap();
        assert_eq!(holder(&path).unwrap(), "process 4711");
        assert!(!Lock::is_held(&path));
        drop(Lock::take_abandoned(&path).unwrap());
        assert!(!path.exists());
        let held = Lock::take(&path).unwrap();
        assert_eq!(holder(&path).unwrap(), format!("process {}", std::process::id()));
        assert!(Lock::take_abandoned(&path).is_none() && Lock::is_held(&path));
        drop(held);
        fs::write(&path, "years of work").unwrap();
        assert_eq!(holder(&path), None);
    }
}
