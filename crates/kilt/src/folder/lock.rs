//! A lock file that one process holds at a time.
//!
//! The system locks the file and releases it when the process ends for any reason. If the file system cannot
//! lock, a second file replaces the lock, because only one process can create it. A killed process leaves
//! that file. The next process on the same machine finds that the previous one has ended, and takes the lock
//! over.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// The start of a lock file's text; the process number follows.
const MAGIC: &str = "sporran build, process ";
/// The start of its second line; the start time of the process and the machine follow.
const STARTED: &str = "started ";

/// The polling interval for file systems without locks.
const PAUSE: Duration = Duration::from_millis(200);
/// The interval of log messages while waiting.
const REMINDER: Duration = Duration::from_secs(60);

/// A function that tries to lock an open file.
type TryLock = fn(&File) -> Result<(), TryLockError>;

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    /// Open as long as the lock is held.
    file: File,
    /// Whether the file outlives the lock.
    stays: bool,
}

impl Lock {
    /// Takes the lock at `path`, and waits for a process that holds it; the log reports the wait. Releasing
    /// the lock removes the file.
    ///
    /// On a file system without locks, a file that only one process can create replaces the lock, with a
    /// warning.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be created.
    pub(super) fn take(path: &Path) -> Result<Self> {
        // A waiting call always returns a lock.
        loop {
            if let Some(lock) = Self::acquire(path, true, false, File::try_lock)? {
                return Ok(lock);
            }
        }
    }

    /// Takes the lock at `path`; none if another process holds it. The file stays when the lock is released.
    ///
    /// On a file system without locks, a second file that only one process can create replaces the lock, with
    /// a warning. It is removed with the lock. If its process was killed on this machine, it is taken over.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be created.
    pub fn try_take(path: &Path) -> Result<Option<Self>> {
        Self::acquire(path, false, true, File::try_lock)
    }

    fn acquire(path: &Path, waits: bool, stays: bool, try_lock: TryLock) -> Result<Option<Self>> {
        let mut last = None;
        loop {
            let mut file = open(path, true)?;
            let mut locked = try_lock(&file);
            if waits && matches!(locked, Err(TryLockError::WouldBlock)) {
                say_that_it_waits(path, "", &mut last);
                locked = file.lock().map_err(TryLockError::Error);
            }
            match locked {
                // The previous holder may have removed the file between opening and locking.
                Ok(()) if is_at(&file, path) => {
                    write_holder(&mut file).map_err(|error| Error::io(path, "write", error))?;
                    return Ok(Some(Self { path: path.to_owned(), file, stays }));
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => {
                    tracing::warn!(
                        file = %path.display(), %error,
                        "the file system cannot lock files; using a file that only one process can create"
                    );
                    if !stays {
                        let _ = fs::remove_file(path);
                    }
                    return Self::create(path, waits);
                }
            }
        }
    }

    /// Takes the lock at `path` if a file is there that no process holds.
    pub(super) fn take_abandoned(path: &Path) -> Option<Self> {
        let stand_in = Self::stand_in(path);
        if stand_in.exists() {
            return if remove_stale(&stand_in) { Self::create(path, false).ok().flatten() } else { None };
        }
        let file = open(path, false).ok()?;
        file.try_lock().ok()?;
        is_at(&file, path).then(|| Self { path: path.to_owned(), file, stays: false })
    }

    /// Whether a process holds the lock at `path`.
    pub fn is_held(path: &Path) -> bool {
        let stand_in = Self::stand_in(path);
        if stand_in.exists() {
            return !is_stale(&stand_in);
        }
        // Some file systems require write access for this kind of lock.
        let file =
            open(path, false).or_else(|_| File::open(path).map_err(|error| Error::io(path, "open", error)));
        file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// The number of the process that holds the lock at `path`, or held it last; `unknown` if the file lacks
    /// it. None for a file that is not a lock file.
    pub fn holder(path: &Path) -> Option<String> {
        let text = fs::read_to_string(Self::file(path)).ok()?;
        // A process that was killed immediately leaves an empty file.
        if text.is_empty() {
            return Some("unknown".to_owned());
        }
        text.lines().next()?.strip_prefix(MAGIC).map(|process| process.trim().to_owned())
    }

    /// The file that holds the lock at `path`: that file, or the one that replaces it.
    pub fn file(path: &Path) -> PathBuf {
        let stand_in = Self::stand_in(path);
        if stand_in.exists() { stand_in } else { path.to_owned() }
    }

    /// The file that replaces the lock on file systems without locks.
    pub(super) fn stand_in(path: &Path) -> PathBuf {
        path.with_extension("held")
    }

    /// Takes the lock by creating a file that only one process can create; none if it exists and this process
    /// does not wait.
    fn create(path: &Path, waits: bool) -> Result<Option<Self>> {
        let path = Self::stand_in(path);
        let mut last = None;
        loop {
            match File::options().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    // Dropped, and the file with it, if the disk is full.
                    let mut lock = Self { path: path.clone(), file, stays: false };
                    write_holder(&mut lock.file).map_err(|error| Error::io(&path, "write", error))?;
                    return Ok(Some(lock));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(&path, "create", error)),
            }
            if remove_stale(&path) {
                continue;
            }
            if !waits {
                tracing::warn!(
                    "{}: if the process that made this file was killed, delete it",
                    path.display()
                );
                return Ok(None);
            }
            say_that_it_waits(&path, "; if that process was killed, delete this file", &mut last);
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while the lock is held, so that it never belongs to another process.
        if !self.stays
            && is_at(&self.file, &self.path)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(file = %self.path.display(), %error, "could not remove the file of a lock");
        }
    }
}

/// Logs that this process waits for another, once and then at intervals.
fn say_that_it_waits(path: &Path, advice: &str, last: &mut Option<Instant>) {
    if last.is_none_or(|at| at.elapsed() >= REMINDER) {
        tracing::warn!(
            "{}: another process is at work (process {}); waiting for it{advice}",
            path.display(),
            Lock::holder(path).unwrap_or_else(|| "unknown".into())
        );
        *last = Some(Instant::now());
    }
}

/// The text of a lock file for a process that started at `start`, with this machine if it is known.
fn text(process: u32, start: Option<&str>, machine: Option<&str>) -> String {
    let mut text = format!("{MAGIC}{process}\n");
    if let (Some(start), Some(machine)) = (start, machine) {
        text.push_str(&format!("{STARTED}{start} on {machine}\n"));
    }
    text
}

fn write_holder(file: &mut File) -> io::Result<()> {
    let process = std::process::id();
    file.set_len(0)?;
    file.write_all(text(process, start_of(process).as_deref(), machine().as_deref()).as_bytes())
}

/// Whether the process in a lock file ran on this machine and has ended. In doubt it counts as running.
fn is_stale(path: &Path) -> bool {
    let Ok(text) = fs::read_to_string(path) else { return false };
    let mut lines = text.lines();
    let process = lines.next().and_then(|line| line.strip_prefix(MAGIC)?.trim().parse().ok());
    let started = lines.next().and_then(|line| line.strip_prefix(STARTED)?.split_once(" on "));
    let (Some(process), Some((start, place))) = (process, started) else { return false };
    machine().is_some_and(|machine| machine == place) && !lives(process, start)
}

/// Removes the file of a process that has ended; returns whether it did.
fn remove_stale(path: &Path) -> bool {
    if !is_stale(path) {
        return false;
    }
    // One process at a time: otherwise another one could remove the new file of a running process.
    let guard = path.with_extension("held-by-none");
    if File::options().write(true).create_new(true).open(&guard).is_err() {
        return false;
    }
    let removed = is_stale(path) && {
        tracing::warn!(
            file = %path.display(),
            "the process that held this lock ({}) has ended; taking the lock over",
            Lock::holder(path).unwrap_or_else(|| "unknown".into())
        );
        fs::remove_file(path).is_ok()
    };
    let _ = fs::remove_file(&guard);
    removed
}

/// Identifies this machine since its last start, and its process namespace; none if the system does not
/// support it.
#[cfg(target_os = "linux")]
fn machine() -> Option<String> {
    let read = |name: &str| fs::read_to_string(name).ok().map(|text| text.trim().to_owned());
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let (name, start) = (read("/proc/sys/kernel/hostname")?, read("/proc/sys/kernel/random/boot_id")?);
    Some(format!("{name} {start} {}", namespace.display()))
}

/// The start time of a process on this machine in system ticks; none if it does not exist.
#[cfg(target_os = "linux")]
fn start_of(process: u32) -> Option<String> {
    let about = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name that may contain blanks and brackets; the 22nd is the start.
    about.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

/// Whether a process with this start time is running.
#[cfg(target_os = "linux")]
fn lives(process: u32, start: &str) -> bool {
    match start_of(process) {
        Some(found) => found == start,
        // Some systems hide other users' processes there.
        None => i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw).is_some_and(|process| {
            rustix::process::test_kill_process(process) != Err(rustix::io::Errno::SRCH)
        }),
    }
}

#[cfg(not(target_os = "linux"))]
fn machine() -> Option<String> {
    None
}

#[cfg(not(target_os = "linux"))]
fn start_of(_process: u32) -> Option<String> {
    None
}

#[cfg(not(target_os = "linux"))]
fn lives(_process: u32, _start: &str) -> bool {
    true
}

fn open(path: &Path, create: bool) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(create).truncate(false);
    options.open(path).map_err(|error| Error::io(path, "open", error))
}

/// Whether `path` still refers to this open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(open), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Whether `path` still refers to this open file: here an open file cannot be removed.
#[cfg(not(unix))]
fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// The largest number of threads that hold a lock at the same time, if each takes it `rounds` times.
    fn most_holders(take: impl Fn() -> Lock + Sync, release: impl Fn(Lock) + Sync, rounds: usize) -> usize {
        let (holders, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let lock = take();
                        most.fetch_max(holders.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        holders.fetch_sub(1, Ordering::SeqCst);
                        release(lock);
                    }
                });
            }
        });
        most.into_inner()
    }

    /// A file system without locks.
    fn cannot(_: &File) -> Result<(), TryLockError> {
        Err(TryLockError::Error(io::ErrorKind::Unsupported.into()))
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn one_at_a_time_holds_a_lock_and_its_file_goes_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".index.building.lock");
        assert_eq!(most_holders(|| Lock::take(&path).unwrap(), drop, 200), 1);
        // The replacement for file systems without locks behaves equally.
        let take = || Lock::acquire(&path, true, false, cannot).unwrap().unwrap();
        assert_eq!(most_holders(take, drop, 2), 1);
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn the_file_of_a_killed_process_is_taken_over_and_a_held_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".index.building.lock");
        assert!(Lock::take_abandoned(&path).is_none());
        fs::write(&path, format!("{MAGIC}4711\n")).unwrap();
        assert_eq!(Lock::holder(&path).unwrap(), "4711");
        assert!(!Lock::is_held(&path));
        drop(Lock::take_abandoned(&path).unwrap());
        assert!(!path.exists());
        let held = Lock::take(&path).unwrap();
        assert_eq!(Lock::holder(&path).unwrap(), std::process::id().to_string());
        assert!(Lock::take_abandoned(&path).is_none() && Lock::is_held(&path));
        assert!(Lock::try_take(&path).unwrap().is_none());
        drop(held);
        fs::write(&path, "years of work").unwrap();
        assert_eq!(Lock::holder(&path), None);
    }

    #[test]
    fn without_locks_of_the_system_a_second_process_still_finds_the_lock_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let take = || Lock::acquire(&path, false, true, cannot).unwrap();
        let held = take().unwrap();
        assert!(take().is_none() && Lock::is_held(&path) && Lock::take_abandoned(&path).is_none());
        assert_eq!(Lock::holder(&path).unwrap(), std::process::id().to_string());
        assert_eq!(names(folder.path()), ["lock", "lock.held"]);
        drop(held);
        assert!(!Lock::is_held(&path));
        assert_eq!(names(folder.path()), ["lock"]);
        assert!(take().is_some());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn without_locks_of_the_system_the_lock_of_a_dead_process_is_taken_over_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let stand_in = Lock::stand_in(&path);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let (own, here) = (std::process::id(), machine().unwrap());
        let start = start_of(own).unwrap();
        let other = format!("{here} elsewhere");
        for (process, start, machine, is_taken) in [
            (dead, "1", &here, true),
            // The number belongs to a new process.
            (own, "1", &here, true),
            (own, start.as_str(), &here, false),
            (dead, "1", &other, false),
        ] {
            fs::write(&stand_in, text(process, Some(start), Some(machine))).unwrap();
            assert_eq!(Lock::is_held(&path), !is_taken, "{process} {start} {machine}");
            let taken = Lock::acquire(&path, false, true, cannot).unwrap();
            assert_eq!(taken.is_some(), is_taken, "{process} {start} {machine}");
            drop(taken);
            assert_eq!(stand_in.exists(), !is_taken);
            assert_eq!(Lock::take_abandoned(&path).is_some(), is_taken);
        }
        // A process that was killed before it wrote its name, and one with an unknown start.
        for unknown in [String::new(), text(dead, None, None)] {
            fs::write(&stand_in, unknown).unwrap();
            assert!(Lock::acquire(&path, false, true, cannot).unwrap().is_none());
        }
        fs::remove_file(&stand_in).unwrap();
        // If several find a dead process, one takes over.
        let die = |lock: Lock| {
            fs::write(&lock.path, text(dead, Some("1"), Some(&here))).unwrap();
            std::mem::forget(lock);
        };
        let take = || Lock::acquire(&path, true, true, cannot).unwrap().unwrap();
        assert_eq!(most_holders(take, die, 8), 1);
    }
}
